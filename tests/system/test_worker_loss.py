"""Tests kill -9 of a worker: no stream breaks, and no token differs."""

import os
import signal
import time

import pytest

import harness
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

KILLS = 4
LONG = dict(max_tokens=4000, ignore_eos=True)
# The penalty keeps the greedy stream from repeating a few tokens.
MODES = [dict(temperature=0, repetition_penalty=1.3), dict(seed=5)]


@pytest.fixture(scope="module")
def folders(models):
    """A target with a few hundred microseconds per token, and a drafter that agrees with it three times in four."""
    shape = dict(vocabulary_size=4096, hidden_size=64, layers=2, dtype="bf16", max_positions=8192, seed=3, untied=True,
                 embedding_scale=0.5, tokenizer_from=harness.TALES_TARGET)
    return dict(target=models.random(**shape), draft=models.spoiled_double(**shape))


@pytest.fixture(scope="module")
def want(servers, folders):
    server = servers(target=folders["target"], drafter="none")
    return [server.generate(PROMPTS[0], **LONG, **mode).bytes for mode in MODES]


def run_with_kills(server, name, modes):
    """Streams all modes at the same time and kills the worker several times meanwhile. Returns the outputs."""
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    streams = [server.start(PROMPTS[0], draft_length=3, **LONG, **mode) for mode in modes]
    outputs = [harness.Output([], "", [], [], None, set()) for _ in streams]
    kills = 0
    marks = [300 + 800 * i for i in range(KILLS)]
    last_pid = None
    while any(output.completion is None for output in outputs):
        for stream, output in zip(streams, outputs):
            if output.completion is None:
                output.add(next(stream))
        if kills < KILLS and len(outputs[0].token_ids) > marks[kills]:
            pid = server.child(name)
            if pid is not None and pid != last_pid:
                os.kill(pid, signal.SIGKILL)
                last_pid = pid
                kills += 1
    assert kills >= 2, "the streams ended before the kills"
    # In the 300 tokens before the first kill, two in three are accepted and one in five is recovered.
    sources = [source for output in outputs for source in output.sources]
    assert sources.count(pb.TOKEN_SOURCE_ACCEPTED) >= 100 and sources.count(pb.TOKEN_SOURCE_RECOVERED) >= 40
    return outputs


def test_the_drafter_dies_and_nobody_notices(servers, folders, want):
    server = servers(**folders, max_slots=4)
    outputs = run_with_kills(server, "tandem-draft", MODES)
    assert [output.bytes for output in outputs] == want
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached again")
    again = server.generate(PROMPTS[0], max_tokens=200, ignore_eos=True, draft_length=3, **MODES[0])
    assert again.completion.speculation.num_accepted_tokens > 50
    assert again.token_ids == list(want[0][0][:200])


def test_the_verifier_dies_and_the_streams_go_on_exactly(servers, folders, want):
    server = servers(**folders, max_slots=4)
    outputs = run_with_kills(server, "tandem-verifier", MODES)
    assert [output.bytes for output in outputs] == want


@pytest.mark.parametrize("transport", ["shm", "inline"])
def test_sampled_streams_survive_both_deaths(servers, folders, transport):
    server = servers(**folders, max_slots=4, transport=transport)
    for name in ("tandem-draft", "tandem-verifier"):
        for output in run_with_kills(server, name, [dict(temperature=0.8)] * 2):
            assert len(output.token_ids) == LONG["max_tokens"]
            assert output.completion.lossless


def test_a_worker_dies_while_a_prompt_is_prefilled(servers, folders):
    server = servers(**folders, max_slots=4)
    prompt = [300 + i % 1000 for i in range(8000)]
    options = dict(temperature=0, max_tokens=8, ignore_eos=True)
    want = server.generate(prompt, **options).bytes
    for name in ("tandem-verifier", "tandem-draft"):
        stream = server.start(prompt, **options)
        time.sleep(0.02)
        os.kill(server.child(name), signal.SIGKILL)
        assert harness.Output.read(stream).bytes == want
        harness.wait_until(lambda: server.child(name) is not None, 30, f"{name} runs again")


def test_drafting_resumes_after_a_kill(servers, folders):
    server = servers(**folders, max_slots=4)
    harness.wait_until(lambda: server.info().drafter_attached, 30, "attached")
    losses = server.info().load.num_drafter_losses
    os.kill(server.child("tandem-draft"), signal.SIGKILL)
    harness.wait_until(lambda: server.info().load.num_drafter_losses > losses, 30, "the loss is noticed")
    # test_fault_storm.py measures how long this takes.
    harness.wait_until(lambda: server.info().drafter_attached, 30, "attached again")
    output = server.generate(PROMPTS[0], max_tokens=40, ignore_eos=True, draft_length=3, **MODES[0])
    assert output.completion.speculation.num_accepted_tokens > 0
