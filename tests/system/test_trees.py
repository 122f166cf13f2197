"""Tests trees of draft tokens through the server: the output is that of plain decoding, whatever happens meanwhile."""

import os
import signal

import grpc
import pytest

import cluster
import harness
from prompts import PROMPTS

MODES = {
    "greedy": dict(temperature=0),
    "reproducible": dict(seed=7),
    "sampled": dict(seed=7, reproducible=False),
    "penalized": dict(seed=7, reproducible=False, presence_penalty=0.6, repetition_penalty=1.2, min_tokens=10),
    "logprobs": dict(temperature=0, logprobs=3),
    "stopped": dict(seed=7, reproducible=False, stop=["and the"]),
}
TREES = dict(draft_length=6, max_tree_nodes=16, drafter="retrieval")
MAX_TOKENS = 40


def requests(mode, **options):
    return [(prompt, dict(max_tokens=MAX_TOKENS, **MODES[mode], **options)) for prompt in PROMPTS[:8]]


def contents(output):
    logprobs = [(round(entry.logprob, 5), [top.token_id for top in entry.top]) for entry in output.logprobs]
    return output.bytes, output.completion.finish_reason, logprobs


def num_trees(outputs):
    return sum(output.completion.speculation.num_trees for output in outputs)


@pytest.fixture(scope="module")
def plain(servers):
    server = servers(drafter="none", max_slots=8)
    return {mode: [contents(output) for output in server.generate_all(requests(mode), 4)] for mode in MODES}


@pytest.fixture(scope="module")
def corpus(servers, plain, tmp_path_factory):
    """An index of the right answers, and of twelve others for each prompt that begin like them and go on differently."""
    folder = tmp_path_factory.mktemp("corpus")
    server = servers(drafter="none", max_slots=8)
    for mode, answers in plain.items():
        for i, (prompt, answer) in enumerate(zip(PROMPTS, answers)):
            text = prompt + answer[0][1]
            (folder / f"{mode}{i}").write_text(text)
            starts = [(text[:len(prompt) + cut], dict(max_tokens=12, temperature=1.2, seed=cut)) for cut in range(4, 52, 4)]
            if mode not in ("greedy", "sampled"):
                continue
            for (start, _), other in zip(starts, server.generate_all(starts, 8)):
                (folder / f"{mode}{i}.{len(start)}").write_text(start + other.text)
    index = tmp_path_factory.mktemp("index") / "index"
    built = harness.run_cli("index", "build", str(folder), "--target", str(harness.TALES_TARGET), "--output", str(index))
    assert built.returncode == 0, built.stderr
    return index


@pytest.mark.parametrize("concurrency", [1, 8], ids=["alone", "batched"])
@pytest.mark.parametrize("mode", MODES)
def test_output_is_that_of_plain_decoding(servers, plain, corpus, mode, concurrency):
    server = servers(drafter="none", max_slots=8, retrieval=corpus)
    outputs = server.generate_all(requests(mode, **TREES), concurrency)
    assert [contents(output) for output in outputs] == plain[mode]
    assert num_trees(outputs) > 0
    for output in outputs:
        stats = output.completion.speculation
        assert {used.name for used in stats.drafters} <= {"retrieval"}
        assert len(stats.num_tested_tokens_per_position) <= TREES["draft_length"], "positions are depths"
        assert stats.num_accepted_tokens <= stats.num_tested_tokens <= stats.num_draft_tokens


def test_trees_and_chains_in_one_batch(servers, plain, corpus):
    server = servers(drafter="none", max_slots=8, retrieval=corpus)
    kinds = [TREES, {**TREES, "max_tree_nodes": 0}, dict(drafter="suffix"), dict(draft_length=0)]
    mixed = [(prompt, dict(options, **kinds[i % len(kinds)]))
             for mode in ("greedy", "reproducible", "sampled") for i, (prompt, options) in enumerate(requests(mode))]
    outputs = server.generate_all(mixed, 8)
    want = [answer for mode in ("greedy", "reproducible", "sampled") for answer in plain[mode]]
    assert [contents(output) for output in outputs] == want
    chains = [output for i, output in enumerate(outputs) if i % len(kinds) == 1]
    assert num_trees(chains) == 0 and num_trees(outputs) > 0


def test_the_server_decides_without_a_request(servers, plain, corpus):
    """Nothing asks for trees here, and nothing fixes the draft length."""
    server = servers(drafter="none", max_slots=8, retrieval=corpus)
    for mode in ("greedy", "sampled"):
        outputs = server.generate_all(requests(mode), 4)
        assert [contents(output) for output in outputs] == plain[mode]


def test_a_verifier_that_dies_in_mid_tree_is_not_noticed(servers, plain, corpus):
    server = servers(drafter="none", max_slots=8, retrieval=corpus, environment={"TANDEM_STEP_SECONDS": "0.01"})
    long = dict(max_tokens=600, ignore_eos=True, temperature=0)
    want = [output.bytes for output in server.generate_all([(prompt, dict(long, draft_length=0)) for prompt in PROMPTS[:4]], 4)]
    streams = [cluster.Stream(server.stub, prompt, 120, {**long, **TREES}) for prompt in PROMPTS[:4]]
    for count in (20, 60, 120):
        harness.wait_until(lambda: all(stream.num_tokens >= count or stream.done for stream in streams), 60, f"{count} tokens")
        harness.wait_until(lambda: server.child("tandem-verifier") is not None, 30, "the verifier lives")
        os.kill(server.child("tandem-verifier"), signal.SIGKILL)
    outputs = [stream.result() for stream in streams]
    assert [output.bytes for output in outputs] == want


def test_the_audit_agrees(servers, plain, corpus):
    server = servers(drafter="none", max_slots=8, retrieval=corpus, audit_fraction=1)
    # Requests whose output depends on their seed alone are replayed. Those without a seed of the client give samples.
    replayed = server.generate_all(requests("reproducible", **TREES) + requests("greedy", **TREES), 4)
    unseeded = dict(max_tokens=MAX_TOKENS, temperature=0.4, reproducible=False)
    sampled = server.generate_all([(prompt, dict(unseeded, **TREES)) for prompt in PROMPTS[:8]], 4)
    assert num_trees(replayed) > 0 and num_trees(sampled) > 0
    harness.wait_until(lambda: server.info().load.audit.num_replayed == len(replayed), 60, "all are replayed")
    audit = server.info().load.audit
    assert audit.num_mismatches == 0 and not audit.biased and audit.num_samples > 0


MODEL_TREES = dict(draft_length=4, max_tree_nodes=12, drafter="model")


@pytest.mark.parametrize("concurrency", [1, 8], ids=["alone", "batched"])
@pytest.mark.parametrize("mode", ["greedy", "reproducible", "logprobs"])
def test_trees_of_the_draft_model_give_the_output_of_plain_decoding(servers, plain, mode, concurrency):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=8)
    outputs = server.generate_all(requests(mode, **MODEL_TREES), concurrency)
    assert [contents(output) for output in outputs] == plain[mode]
    chains = server.generate_all(requests(mode, **{**MODEL_TREES, "max_tree_nodes": 0}), concurrency)
    assert num_trees(chains) == 0 and num_trees(outputs) > 0
    for output in outputs:
        assert len(output.completion.speculation.num_tested_tokens_per_position) <= MODEL_TREES["draft_length"], "positions are depths"
    of_trees, of_chains = (sum(output.completion.speculation.num_drafts for output in some) for some in (outputs, chains))
    assert of_trees < 0.95 * of_chains, "siblings are accepted, too"


def test_workers_that_die_while_the_draft_model_draws_trees_are_not_noticed(servers, plain):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=8, environment={"TANDEM_STEP_SECONDS": "0.01"})
    long = dict(max_tokens=600, ignore_eos=True, temperature=0)
    want = [output.bytes for output in server.generate_all([(prompt, dict(long, draft_length=0)) for prompt in PROMPTS[:4]], 4)]
    streams = [cluster.Stream(server.stub, prompt, 120, {**long, **MODEL_TREES}) for prompt in PROMPTS[:4]]
    for count, victim in ((20, "tandem-draft"), (60, "tandem-verifier"), (120, "tandem-draft")):
        harness.wait_until(lambda: all(stream.num_tokens >= count or stream.done for stream in streams), 60, f"{count} tokens")
        harness.wait_until(lambda: server.child(victim) is not None, 30, f"{victim} lives")
        os.kill(server.child(victim), signal.SIGKILL)
    assert [stream.result().bytes for stream in streams] == want


def test_the_audit_agrees_with_trees_of_the_draft_model(servers):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=8, audit_fraction=1)
    unseeded = dict(max_tokens=MAX_TOKENS, temperature=1, reproducible=False)
    sampled = server.generate_all([(prompt, dict(unseeded, **MODEL_TREES)) for prompt in PROMPTS], 4)
    assert num_trees(sampled) > 0
    audit = server.info().load.audit
    assert not audit.biased and audit.num_samples > 0


def test_what_is_allowed_is_said(servers, corpus):
    server = servers(drafter="none", max_slots=8, retrieval=corpus)
    assert server.info().max_tree_nodes == 16
    for wrong in (-1, 17):
        with pytest.raises(grpc.RpcError) as refused:
            server.generate("Once", max_tree_nodes=wrong)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "speculation.max_tree_nodes" in refused.value.details() and "from 0 to 16" in refused.value.details()
    ended = harness.run_cli("serve", "--max-tree-nodes", "65")
    assert ended.returncode == 2 and "--max-tree-nodes" in ended.stderr and "64" in ended.stderr


def test_without_trees_all_drafts_are_chains(servers, plain, corpus):
    server = servers(drafter="none", max_slots=8, retrieval=corpus, environment={"TANDEM_MAX_TREE_NODES": "0"})
    assert server.info().max_tree_nodes == 0
    outputs = server.generate_all(requests("sampled", draft_length=6), 4)
    assert [contents(output) for output in outputs] == plain["sampled"]
    assert num_trees(outputs) == 0
