"""Tests a server with several draft models: the output is that of plain decoding, whichever model drafts, and under kills too."""

import concurrent.futures
import os
import shutil
import signal

import grpc
import pytest

import harness
from prompts import PROMPTS, requests

MODES = {"greedy": dict(temperature=0), "reproducible": dict(seed=7),
         "penalties": dict(temperature=0, repetition_penalty=1.3, frequency_penalty=0.4, logprobs=2)}


@pytest.fixture(scope="module")
def plain(plain_bytes):
    return plain_bytes(MODES, target=harness.TALES_TARGET)


@pytest.fixture(scope="module")
def drafts(models, tmp_path_factory):
    """The drafter of the pair, the same by another name, and one that proposes noise."""
    again = tmp_path_factory.mktemp("models") / "again"
    shutil.copytree(harness.TALES_DRAFT, again)
    noise = again.parent / "noise"
    noise.symlink_to(models.tales_sized_draft())
    return ",".join(map(str, (harness.TALES_DRAFT, again, noise)))


NAMES = ["draft", "again", "noise"]


def attached(server):
    return [model.name for model in server.info().draft_models if model.attached]


@pytest.fixture
def server(servers, drafts):
    running = servers(target=harness.TALES_TARGET, draft=drafts, max_slots=8)
    harness.wait_until(lambda: attached(running) == NAMES, 30, "all draft models are attached")
    return running


def used(outputs):
    return {stats.model for output in outputs for stats in output.completion.speculation.drafters}


@pytest.mark.parametrize("concurrency", [1, 8], ids=["alone", "batched"])
def test_output_is_that_of_plain_decoding(server, plain, concurrency):
    models = set()
    for mode, options in MODES.items():
        for length in ({}, {"draft_length": 4}, {"draft_length": 4, "max_tree_nodes": 12}):
            outputs = server.generate_all(requests(**options, **length), concurrency)
            assert [output.bytes for output in outputs] == plain[mode], (mode, length)
            models |= used(outputs)
    assert models <= set(NAMES) and len(models) > 1


@pytest.mark.parametrize("name", NAMES)
def test_a_request_can_name_its_model(server, plain, name):
    for mode, options in MODES.items():
        outputs = server.generate_all(requests(**options, draft_length=3, drafter=name), 4)
        assert [output.bytes for output in outputs] == plain[mode]
        assert used(outputs) == {name}


def test_requests_with_different_models_share_rounds(server, plain):
    mixed = [(prompt, dict(max_tokens=40, draft_length=3, drafter=NAMES[i % 3], **MODES["greedy"])) for i, prompt in enumerate(PROMPTS[:6])]
    outputs = server.generate_all(mixed, 6)
    assert [output.bytes for output in outputs] == plain["greedy"]
    for i, output in enumerate(outputs):
        assert used([output]) == {NAMES[i % 3]}


def test_sampled_drafts_of_all_models_are_judged(server):
    outputs = server.generate_all(
        [(prompt, dict(max_tokens=60, temperature=1.0, draft_length=3, drafter=name)) for prompt in PROMPTS[:4] for name in NAMES], 8)
    accepted = {name: 0 for name in NAMES}
    for output in outputs:
        for stats in output.completion.speculation.drafters:
            accepted[stats.model] += stats.num_accepted_tokens
    assert accepted["draft"] > 100 and accepted["again"] > 100
    assert server.info().load.num_ring_errors == 0


def test_the_model_that_gains_drafts(server):
    """Requests that name no model are drafted for by a model that knows the target, but for trials."""
    outputs = [server.generate(prompt, max_tokens=100, ignore_eos=True, temperature=0, draft_length=4) for prompt in PROMPTS * 2]
    drafted = {name: 0 for name in NAMES}
    for output in outputs:
        for stats in output.completion.speculation.drafters:
            drafted[stats.model] += stats.num_draft_tokens
    assert drafted["noise"] < 0.25 * sum(drafted.values())


def test_a_killed_model_leaves_the_others(servers, drafts, plain):
    server = servers(target=harness.TALES_TARGET, draft=drafts, max_slots=8, admin="127.0.0.1:0")
    harness.wait_until(lambda: attached(server) == NAMES, 30, "all draft models are attached")
    workers = [pid for pid, name in server.children().items() if name == "tandem-draft"]
    assert len(workers) == 3
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for i, pid in enumerate(workers):
            mode = list(MODES)[i]
            outputs = pool.submit(server.generate_all, requests(**MODES[mode], draft_length=3) * 3, 8)
            harness.wait_until(lambda: server.info().load.num_running > 0 or outputs.done(), 10, "requests run")
            os.kill(pid, signal.SIGKILL)
            assert [output.bytes for output in outputs.result(60)] == plain[mode] * 3
    harness.wait_until(lambda: attached(server) == NAMES, 30, "all draft models are back")
    assert server.info().load.num_drafter_losses == 3


def test_a_model_that_is_not_served_is_refused(server):
    with pytest.raises(grpc.RpcError) as refused:
        server.generate("Once", drafter="other")
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert '"model", "draft", "again", "noise"' in refused.value.details()


def test_lists_that_make_no_sense_are_refused():
    def complaint(draft):
        ended = harness.run_cli("generate", "--target", str(harness.TALES_TARGET), "--draft", draft, "Once")
        assert ended.returncode != 0
        return ended.stderr

    draft = str(harness.TALES_DRAFT)
    assert "is given twice" in complaint(f"{draft},{draft}/")
    assert "got 5 folders, allowed: at most 4" in complaint("a,b,c,d,e")
    assert "an empty name" in complaint(f"{draft},")
