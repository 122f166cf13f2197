"""Tests the pair of models that comes with Tandem. The other tests use a smaller one."""

import pathlib

import pytest

import harness
from prompts import PROMPTS

MODES = {"greedy": dict(temperature=0), "reproducible": dict(seed=11), "sampled": dict(temperature=0.8)}


@pytest.fixture(scope="module")
def server(servers):
    server = servers(target=harness.EMBEDDED_TARGET, draft=harness.EMBEDDED_DRAFT, max_slots=8)
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    return server


@pytest.mark.parametrize("mode", MODES)
def test_drafts_are_accepted_and_change_nothing(server, mode):
    requests = [(prompt, dict(max_tokens=48, **MODES[mode])) for prompt in PROMPTS[:8]]
    drafted = server.generate_all([(prompt, dict(options, draft_length=4)) for prompt, options in requests], 4)
    if mode != "sampled":
        plain = server.generate_all([(prompt, dict(options, draft_length=0)) for prompt, options in requests], 1)
        assert [output.bytes for output in drafted] == [output.bytes for output in plain]
    accepted = sum(output.completion.speculation.num_accepted_tokens for output in drafted)
    tested = sum(output.completion.speculation.num_tested_tokens for output in drafted)
    assert accepted / tested > 0.45, "the draft was distilled from this target"


def test_it_is_the_default(tmp_path, monkeypatch):
    monkeypatch.delenv("TANDEM_MODELS")
    server = harness.Server(tmp_path)
    try:
        info = server.info()
        assert (info.model, info.draft_model, info.max_context_tokens) == ("tales", "tales-draft", 1024)
        text = server.generate("Once upon a time there was a", temperature=0.7, seed=1, max_tokens=100).text
        assert text.count(" the ") >= 3, text
    finally:
        server.stop()


def test_rounded_activations_keep_every_promise(servers):
    if "avx512_bf16" not in pathlib.Path("/proc/cpuinfo").read_text():
        pytest.skip("this CPU does not multiply BF16 numbers")
    rounded = servers(target=harness.EMBEDDED_TARGET, draft=harness.EMBEDDED_DRAFT, max_slots=8, activation_precision="bf16")
    harness.wait_until(lambda: rounded.info().drafter_attached, 30, "the drafter is attached")
    requests = [(prompt, dict(max_tokens=48, temperature=0)) for prompt in PROMPTS[:8]]
    drafted = rounded.generate_all([(prompt, dict(options, draft_length=4)) for prompt, options in requests], 4)
    plain = rounded.generate_all([(prompt, dict(options, draft_length=0)) for prompt, options in requests], 1)
    assert [output.bytes for output in drafted] == [output.bytes for output in plain]
    assert sum(output.completion.speculation.num_accepted_tokens for output in drafted) > 50
    exact = servers(target=harness.EMBEDDED_TARGET, draft=harness.EMBEDDED_DRAFT, max_slots=8)
    first = [server.generate(PROMPTS[0], max_tokens=1, temperature=0, logprobs=1).logprobs[0].logprob for server in (rounded, exact)]
    assert first[0] != first[1], "activations are rounded"
    assert abs(first[0] - first[1]) < 0.05
