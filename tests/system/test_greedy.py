"""Tests that greedy decoding through three processes gives the output of the target alone, token for token."""

import pytest

import harness
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

DRAFT_LENGTHS = range(9)
MAX_TOKENS = 20

# The end of text is a token like any other: half of the prompts continue after it.
REQUESTS = [(prompt, dict(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=i % 2 == 0))
            for i, prompt in enumerate(PROMPTS)]


@pytest.fixture(scope="module")
def plain(servers):
    outputs = servers(drafter="none").generate_all(REQUESTS, concurrency=1)
    assert {source for output in outputs for source in output.sources} == {pb.TOKEN_SOURCE_PLAIN}
    assert len({output.bytes for output in outputs}) > len(PROMPTS) // 2, "prompts must tell paths apart"
    return [output.bytes for output in outputs]


@pytest.fixture(params=["embedded", "target itself", "random"])
def draft(request, models):
    folders = {"embedded": harness.TALES_DRAFT, "target itself": harness.TALES_TARGET}
    return request.param, folders.get(request.param) or models.tales_sized_draft()


@pytest.mark.parametrize("concurrency", [1, 8], ids=["alone", "batched"])
@pytest.mark.parametrize("transport", ["shm", "inline"])
def test_output_is_that_of_plain_decoding(servers, plain, draft, transport, concurrency):
    name, folder = draft
    server = servers(target=harness.TALES_TARGET, draft=folder, transport=transport, max_slots=8, threads=1)
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    harness.wait_until(lambda: server.info().ring_transport == transport, 30, f"there is a ring of {transport}")

    drafted = accepted = 0
    for draft_length in DRAFT_LENGTHS:
        requests = [(prompt, {**options, "draft_length": draft_length}) for prompt, options in REQUESTS]
        outputs = server.generate_all(requests, concurrency)
        for (prompt, options), output, want in zip(requests, outputs, plain):
            assert output.bytes == want, f"{prompt!r} {options}"
            stats = output.completion.speculation
            if draft_length == 0:
                assert stats.num_drafts == 0
            drafted += stats.num_draft_tokens
            accepted += stats.num_accepted_tokens
            if name == "target itself" and options["ignore_eos"]:
                assert stats.num_accepted_tokens == stats.num_draft_tokens, f"{prompt!r} {options}"
                assert stats.num_draft_tokens > 0 or draft_length == 0
    if name == "random":
        assert accepted / drafted < 0.05
    if name == "embedded":
        assert 0.2 < accepted / drafted < 0.95


def test_transformed_logits_change_nothing(servers):
    """Penalties, bias and min_tokens are functions of the context, so the drafter must see the same context."""
    drafting = servers(draft=harness.TALES_DRAFT, target=harness.TALES_TARGET, transport="shm", max_slots=8)
    plainly = servers(drafter="none")
    for options in [
            dict(repetition_penalty=1.3),
            dict(presence_penalty=1.0, frequency_penalty=0.7),
            dict(frequency_penalty=-1.5),
            dict(logit_bias={262: 4.0, 11: -100.0}),
            dict(min_tokens=10, logit_bias={harness.END_OF_TEXT: 12.0}),
            dict(repetition_penalty=1.1, presence_penalty=0.5, logit_bias={300: 3.0}, min_tokens=5),
    ]:
        for prompt in PROMPTS[:4]:
            want = plainly.generate(prompt, temperature=0, max_tokens=32, **options).bytes
            for draft_length in (1, 3, 8):
                got = drafting.generate(prompt, temperature=0, max_tokens=32, draft_length=draft_length, **options)
                assert got.bytes == want, f"{prompt!r} {options} draft_length={draft_length}"


def test_disabled_speculation_decodes_plainly(servers):
    server = servers(draft=harness.TALES_DRAFT, target=harness.TALES_TARGET, transport="shm", max_slots=8)
    output = server.generate(PROMPTS[0], temperature=0, max_tokens=16, enabled=False)
    assert set(output.sources) == {pb.TOKEN_SOURCE_PLAIN}
    assert output.completion.speculation.num_drafts == 0


def test_numbers_that_are_not_finite_stop_drafting_and_nothing_else(servers, models, tmp_path):
    """A drafter whose logits are all NaN gives no help, but does not change the output."""
    folder = tmp_path / "draft"
    models.write(folder, vocabulary_size=4096, hidden_size=32, layers=1, max_positions=1024,
                 tokenizer_from=harness.TALES_DRAFT)
    harness.overwrite_tensor(folder / "model.safetensors", "model.norm.weight", float("nan"))
    server = servers(target=harness.TALES_TARGET, draft=folder)
    plainly = servers(drafter="none")
    for prompt in PROMPTS[:6]:
        got = server.generate(prompt, temperature=0, max_tokens=16, draft_length=4)
        assert got.bytes == plainly.generate(prompt, temperature=0, max_tokens=16).bytes
        assert got.completion.speculation.num_accepted_tokens == 0
