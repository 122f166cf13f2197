"""Tests --stream-padding-bytes: the size of a message does not reveal how many tokens it has."""

import pytest

import harness

PADDING = 512
PROMPT = "Once upon a time there was a little fox"
OPTIONS = dict(temperature=0, max_tokens=64, ignore_eos=True, draft_length=6)


@pytest.fixture(scope="module")
def padding(tmp_path_factory):
    """A server that pads to a multiple of this size; 0 means no padding."""
    running = {}

    def get(multiple):
        if multiple not in running:
            running[multiple] = harness.Server(tmp_path_factory.mktemp("server"),
                                               environment={"TANDEM_STREAM_PADDING_BYTES": str(multiple)})
        return running[multiple]

    yield get
    for server in running.values():
        server.stop()


def sizes_of(server, **options):
    """Returns [(tokens, bytes) of each message], and the output."""
    responses = list(server.start(PROMPT, **{**OPTIONS, **options}))
    return [(len(response.token_ids), response.ByteSize()) for response in responses], harness.Output.read(iter(responses))


@pytest.mark.parametrize("options", [{}, {"logprobs": 2}], ids=["text", "logprobs"])
def test_messages_of_few_and_of_many_tokens_are_of_one_size(padding, options):
    plain, output = sizes_of(padding(0), **options)
    assert len({tokens for tokens, _ in plain}) > 2, "rounds must differ in what they accept"
    # This must be hidden: without padding, more tokens take more bytes.
    assert len({size for _, size in plain}) > len(plain) // 3

    padded, same = sizes_of(padding(PADDING), **options)
    assert same.bytes == output.bytes
    assert {size for _, size in padded} == {PADDING}
    assert len({tokens for tokens, _ in padded}) > 2


def test_a_long_message_takes_the_next_multiple(padding):
    padded, _ = sizes_of(padding(64), logprobs=10)
    sizes = {size for _, size in padded}
    assert len(sizes) > 1 and all(size % 64 == 0 for size in sizes)
