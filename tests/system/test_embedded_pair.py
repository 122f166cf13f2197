"""Tests the pair of models that comes with Tandem. The other tests use a smaller one."""

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
        assert "king" in "".join(server.generate("Once upon a time there was a", temperature=0.7, seed=seed).text for seed in range(4))
    finally:
        server.stop()
