"""Tests the log-probabilities of prompt tokens: `prompt_logprobs` by gRPC, and `echo` with `logprobs` by HTTP.

Teacher forcing is the reference: the tokens of an output have, as a prompt, the numbers that they had when they were drawn.
"""

import os
import signal

import grpc
import openai
import pytest

import harness
from tandem.v1 import generate_pb2 as pb

PROMPT = "Once upon a time there was a king who"
GREEDY = dict(temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def server(servers):
    return servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4)


@pytest.fixture(scope="module")
def drawn(server):
    """A long text and what its tokens had as an output: (ids of prompt and output, number of the prompt's ids, logprobs)."""
    ids = list(server.stub.Tokenize(pb.TokenizeRequest(text=PROMPT)).ids)
    output = server.generate(ids, max_tokens=400, logprobs=3, logprobs_with_text=True, **GREEDY)
    return ids + output.token_ids, len(ids), output.logprobs


class Scored:
    """What a call says of its prompt, and its output."""

    def __init__(self, responses):
        self.entries, self.starts, self.pieces = [], [], []
        self.output = harness.Output([], "", [], [], None, set())
        for response in responses:
            if response.prompt_logprobs:
                assert not self.output.token_ids, "the prompt comes before the output"
                assert response.index == 0
                self.pieces.append(len(response.prompt_logprobs))
            self.entries.extend(response.prompt_logprobs)
            if response.HasField("prompt_start"):
                self.starts.append(response.prompt_start)
            if response.index == 0:
                self.output.add(response)
        assert self.output.completion is not None


def check(scored, drawn):
    ids, num_prompt, logprobs = drawn
    assert len(scored.entries) == len(ids) - 1
    assert [start.token_id for start in scored.starts] == ids[:1]
    assert scored.entries[num_prompt - 1 :] == logprobs, "bit for bit"


@pytest.mark.parametrize("options", [dict(), dict(max_tokens=0), dict(seed=3, temperature=1.5, top_k=2, draft_length=4)], ids=str)
def test_a_prompt_has_the_logprobs_that_its_tokens_had_when_they_were_drawn(server, drawn, options):
    options = {**GREEDY, "max_tokens": 8, **options}
    scored = Scored(server.start(drawn[0], prompt_logprobs=3, logprobs_with_text=True, **options))
    check(scored, drawn)
    assert max(scored.pieces) <= 64
    usage = scored.output.completion.usage
    assert len(scored.output.token_ids) == usage.completion_tokens == options["max_tokens"]
    assert usage.prompt_tokens == len(drawn[0])
    assert usage.cached_prompt_tokens == 0, "its rows were in the prefix cache"
    assert scored.output.completion.finish_reason == pb.FINISH_REASON_LENGTH
    if options["max_tokens"]:
        assert scored.output.bytes == server.generate(drawn[0], **options).bytes
    again = server.generate(drawn[0], max_tokens=1)
    assert again.completion.usage.cached_prompt_tokens > 0, "others find its rows"


def test_numbers_of_top_tokens_and_texts_are_as_asked(server, drawn):
    for num_top in (0, 20):
        scored = Scored(server.start(drawn[0][:70], prompt_logprobs=num_top, max_tokens=0))
        assert all(len(entry.top) == num_top and not entry.text for entry in scored.entries)
        assert not scored.starts[0].text
    texts = Scored(server.start(PROMPT, prompt_logprobs=1, logprobs_with_text=True, max_tokens=0))
    words = [entry.text for entry in texts.entries]
    assert PROMPT.endswith("".join(words[1:])), words
    assert texts.starts[0].text


def test_short_prompts(server):
    for ids in ([5], [5, 6]):
        for max_tokens in (0, 3):
            scored = Scored(server.start(ids, prompt_logprobs=2, max_tokens=max_tokens, **GREEDY))
            assert len(scored.entries) == len(ids) - 1
            assert [start.token_id for start in scored.starts] == [5]
            assert len(scored.output.token_ids) == max_tokens


def test_only_the_first_choice_has_them(server, drawn):
    for max_tokens in (0, 5):
        responses = list(server.start(drawn[0], prompt_logprobs=3, logprobs_with_text=True, n=3, max_tokens=max_tokens, **GREEDY))
        check(Scored(responses), drawn)
        assert sorted(response.index for response in responses if response.HasField("completion")) == [0, 1, 2]


def test_limits_name_their_field(server):
    for options, words in ((dict(prompt_logprobs=21), "sampling_params.prompt_logprobs: got 21, allowed: from 0 to 20"),
                           (dict(prompt_logprobs=-1), "sampling_params.prompt_logprobs: got -1, allowed: from 0 to 20"),
                           (dict(max_tokens=0), "sampling_params.max_tokens: got 0, allowed: 1 or more; with prompt_logprobs also 0")):
        with pytest.raises(grpc.RpcError) as error:
            server.generate(PROMPT, **options)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert words in error.value.details()


def test_a_verifier_that_dies_in_a_prompt_loses_no_entry(server, drawn):
    stream = server.start(drawn[0], prompt_logprobs=3, logprobs_with_text=True, max_tokens=4, **GREEDY)
    first = [next(stream) for _ in range(2)]
    os.kill(server.child("tandem-verifier"), signal.SIGKILL)
    check(Scored([*first, *stream]), drawn)


def test_a_prompt_that_gives_its_pages_up_has_each_entry_once(servers, drawn):
    # The pool holds hardly more than one of them.
    info = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4).info()
    num_pages = 8
    room = num_pages * info.load.kv_page_tokens
    server = servers(target=harness.TALES_TARGET, drafter="none", max_slots=3, kv_cache_bytes=room * 6 * 1024)
    assert server.info().load.num_kv_pages == num_pages
    ids = drawn[0][: room * 2 // 3]
    want = (ids, drawn[1], drawn[2][: len(ids) - drawn[1]])
    streams = [server.start(ids, prompt_logprobs=3, logprobs_with_text=True, max_tokens=room // 4, **GREEDY) for _ in range(3)]
    for stream in streams:
        check(Scored(stream), want)


def test_completions_echo_the_logprobs_of_their_prompt(server, gateways, drawn):
    """What lm-evaluation-harness does: echo, logprobs, and one token or none."""
    gateway = gateways(server.address)
    ids, num_prompt, logprobs = drawn
    ids, logprobs = ids[:100], logprobs[: 100 - num_prompt]
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0) as client:
        for max_tokens in (1, 0):
            for prompt in (ids, server.stub.Detokenize(pb.DetokenizeRequest(ids=ids)).text):
                answer = client.completions.create(model="", prompt=prompt, echo=True, logprobs=3, max_tokens=max_tokens, temperature=0)
                choice = answer.choices[0]
                got = choice.logprobs
                assert answer.usage.completion_tokens == max_tokens
                for values in (got.tokens, got.token_logprobs, got.top_logprobs, got.text_offset):
                    assert len(values) == len(ids) + max_tokens
                assert got.token_logprobs[0] is None and got.top_logprobs[0] is None
                end = len(ids)
                assert got.token_logprobs[num_prompt:end] == pytest.approx([entry.logprob for entry in logprobs], abs=1e-4)
                assert got.tokens[num_prompt:end] == [entry.text for entry in logprobs]
                assert got.text_offset[0] == 0 and got.text_offset == sorted(got.text_offset)
                for token, offset in list(zip(got.tokens, got.text_offset))[num_prompt:]:
                    assert choice.text[offset : offset + len(token)] == token
        only = client.completions.create(model="", prompt=PROMPT, echo=True, max_tokens=0)
        assert only.choices[0].text == PROMPT and only.choices[0].logprobs is None
        both = client.completions.create(model="", prompt=PROMPT, echo=True, logprobs=1, max_tokens=2, n=2, temperature=0)
        assert both.choices[0].logprobs == both.choices[1].logprobs
