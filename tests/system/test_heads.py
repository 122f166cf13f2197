"""Tests drafters that live in the verifier: the output is that of plain decoding, under kills too."""

import concurrent.futures
import itertools
import os
import signal

import grpc
import pytest

import cluster
import harness
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

MODES = {"greedy": dict(temperature=0), "reproducible": dict(seed=7), "sampled": dict(seed=7, reproducible=False),
         "penalties": dict(temperature=0, repetition_penalty=1.3, frequency_penalty=0.4, logprobs=2)}
TARGET = harness.EMBEDDED_TARGET
HEADS = {name: TARGET.parent / name for name in ("medusa", "blockwise", "eagle", "layer_skip", "pass")}


# Lookups find something in texts that repeat.
REPEATING = ["The king said: bring me the golden bird. The queen said: bring me the golden bird. The fox said:", *PROMPTS[:3]]


def requests(**options):
    return [(prompt, dict(max_tokens=40, **options)) for prompt in PROMPTS[:4]]


def check_that_kills_change_nothing(server, drafter):
    """Kills the verifier in the middle of four streams, and checks that they were drafted for before and after that."""
    for mode in (dict(temperature=0), dict(temperature=0.4, seed=7)):  # both repeat themselves at times
        options = dict(max_tokens=700, ignore_eos=True, **mode)  # on a busy machine, streams do not run side by side
        plain = server.generate_all([(prompt, dict(options, draft_length=0)) for prompt in REPEATING], 4)
        drafting = dict(draft_length=3, max_tree_nodes=8, drafter=drafter)
        streams = []
        for prompt, answer in zip(REPEATING, plain):
            if drafter == "prediction":
                drafting["prediction"] = pb.Prediction(token_ids=pb.TokenIds(ids=answer.token_ids))
            streams.append(cluster.Stream(server.stub, prompt, 120, {**options, **drafting}))
        harness.wait_until(lambda: all(stream.num_tokens >= 30 for stream in streams), 60, "all streams run")
        harness.wait_until(lambda: any(pb.TOKEN_SOURCE_ACCEPTED in stream.output.sources for stream in streams), 60, "drafts are accepted")
        assert not any(stream.done for stream in streams), "the kill must hit them"
        counts = [stream.num_tokens for stream in streams]
        victim = server.child("tandem-verifier")
        os.kill(victim, signal.SIGKILL)
        harness.wait_until(lambda: server.child("tandem-verifier") not in (None, victim), 60, "the verifier is started again")
        counts_after = [stream.num_tokens for stream in streams]
        outputs = [stream.result() for stream in streams]
        assert [output.bytes for output in outputs] == [output.bytes for output in plain], mode
        for output in outputs:
            assert {used.name for used in output.completion.speculation.drafters} <= {drafter}
        for part in ([output.sources[:count] for output, count in zip(outputs, counts)],
                     [output.sources[count:] for output, count in zip(outputs, counts_after)]):
            assert pb.TOKEN_SOURCE_ACCEPTED in itertools.chain(*part)


@pytest.fixture(scope="module")
def plain(servers):
    server = servers(target=TARGET, drafter="none")
    return {mode: [output.bytes for output in server.generate_all(requests(**options), 1)] for mode, options in MODES.items()}


@pytest.mark.parametrize("concurrency", [1, 8], ids=["alone", "batched"])
@pytest.mark.parametrize("drafter", HEADS)
def test_output_is_that_of_plain_decoding(servers, plain, drafter, concurrency):
    server = servers(target=TARGET, drafter="none", max_slots=8, heads=HEADS[drafter])
    drafted = accepted = trees = 0
    for mode, options in MODES.items():
        for length in ({}, {"draft_length": 4}, {"draft_length": 4, "max_tree_nodes": 16}):
            outputs = server.generate_all(requests(**options, **length, drafter=drafter), concurrency)
            assert [output.bytes for output in outputs] == plain[mode], (mode, length)
            for output in outputs:
                stats = output.completion.speculation
                assert {used.name for used in stats.drafters} <= {drafter}
                drafted += stats.num_draft_tokens
                accepted += stats.num_accepted_tokens
                trees += stats.num_trees
    assert 0 < accepted < drafted and trees > 0


def test_heads_beside_a_draft_model_and_lookups(servers, plain):
    server = servers(target=TARGET, draft=harness.EMBEDDED_DRAFT, max_slots=8, heads=HEADS["medusa"],
                     environment={"TANDEM_DRAFTERS": "model,suffix,medusa"})
    harness.wait_until(lambda: server.info().drafter_attached, 30, "the drafter is attached")
    assert "medusa" in server.info().drafters and "blockwise" not in server.info().drafters
    used = set()
    for mode in ("greedy", "reproducible"):
        for length in ({}, {"draft_length": 3}):
            outputs = server.generate_all(requests(**MODES[mode], **length), 8)
            assert [output.bytes for output in outputs] == plain[mode]
            used |= {stats.name for output in outputs for stats in output.completion.speculation.drafters}
    assert {"model", "medusa"} <= used


@pytest.mark.parametrize("drafter", HEADS)
def test_a_killed_verifier_changes_nothing(servers, drafter):
    check_that_kills_change_nothing(servers(target=TARGET, drafter="none", max_slots=8, heads=HEADS[drafter]), drafter)


@pytest.mark.parametrize("drafter", ["suffix", "ngram", "recycling", "prediction"])
def test_a_killed_verifier_changes_nothing_for_lookups(servers, drafter):
    server = servers(target=TARGET, drafter="none", max_slots=8, heads=HEADS["blockwise"])
    check_that_kills_change_nothing(server, drafter)


@pytest.mark.parametrize("version", [{}, {"eagle3": True, "draft_vocabulary": 50}], ids=["eagle1", "eagle3"])
def test_eagle_changes_nothing(servers, models, version):
    """The layer has random weights. Its guesses are mostly wrong, and its rows come and go."""
    target = models.random(vocabulary_size=64, hidden_size=32, layers=12, heads=4, kv_heads=2, head_size=8, intermediate_size=64,
                           max_positions=512, embedding_scale=0.4, seed=5)
    eagle = models.random(vocabulary_size=64, hidden_size=32, heads=4, kv_heads=2, head_size=8, intermediate_size=64, eagle=True,
                          embedding_scale=1.5, seed=6, **version)
    prompts = [[62, *((7 * i + i * i * k) % 60 for i in range(10 + 30 * k))] for k in range(6)]
    modes = {**MODES, "penalties": dict(temperature=0, repetition_penalty=1.3, frequency_penalty=0.4)}

    def outputs(server, concurrency, **options):
        return {mode: [output.token_ids for output in server.generate_all(
            [(prompt, dict(max_tokens=80, ignore_eos=True, **options, **mode_options)) for prompt in prompts], concurrency)]
            for mode, mode_options in modes.items()}

    plain = outputs(servers(target=target, drafter="none", max_slots=8), 1)
    server = servers(target=target, drafter="none", max_slots=8, heads=eagle, environment={"TANDEM_DRAFTERS": "eagle"})
    assert "eagle" in server.info().drafters
    assert outputs(server, 1, draft_length=3) == plain
    assert outputs(server, 8, draft_length=4, max_tree_nodes=16) == plain
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(outputs, server, 8, draft_length=4, max_tree_nodes=16)
        harness.wait_until(lambda: server.info().load.num_running > 0 or running.done(), 10, "requests run")
        os.kill(server.child("tandem-verifier"), signal.SIGKILL)
        assert running.result(120) == plain
    used = server.generate(prompts[0], max_tokens=80, ignore_eos=True, temperature=0, draft_length=4, max_tree_nodes=16)
    stats = used.completion.speculation
    assert stats.drafter == "eagle" and stats.num_draft_tokens > 0 and stats.num_trees > 0


def test_what_the_server_lacks_is_refused(servers):
    server = servers(target=TARGET, drafter="none", max_slots=8, heads=HEADS["medusa"])
    with pytest.raises(grpc.RpcError) as refused:
        server.generate("Once", drafter="blockwise")
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "the server has other heads" in refused.value.details() and '"medusa"' in refused.value.details()


def test_heads_that_do_not_fit_are_refused(models):
    other = models.random(vocabulary_size=300, hidden_size=16, layers=1, max_positions=64, seed=1)

    def complaint(*arguments):
        ended = harness.run_cli("generate", "--target", str(other), *arguments, "Once")
        assert ended.returncode != 0
        return ended.stderr

    assert "hidden_size is 512, the target has 16 (these are heads of another model)" in complaint("--heads", str(HEADS["medusa"]))
    assert "--heads: /none is no folder" in complaint("--heads", "/none")
    assert 'the drafter "medusa" needs heads (--heads DIR)' in complaint("--drafter", "medusa")
