"""Tests the lossless audit: honest requests are decoded again and agree, and a changed target is noticed."""

import re
import shutil

import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import harness
from prompts import PROMPTS

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def audit(server):
    return server.info().load.audit


def health(server):
    stub = health_pb2_grpc.HealthStub(server.channel)
    return stub.Check(health_pb2.HealthCheckRequest(service="tandem.v1.Generation"), timeout=30).status


@pytest.fixture(scope="module")
def server(servers):
    return servers(audit_fraction=1)  # the embedded pair


def test_greedy_and_reproducible_requests_are_decoded_again_and_agree(server):
    before = audit(server)
    requests = [(prompt, dict(max_tokens=48, **options)) for prompt in PROMPTS[:4] for options in (
        dict(temperature=0),
        dict(temperature=0, repetition_penalty=1.3, stop=["."]),
        dict(seed=3, top_p=0.9, draft_length=6),
        dict(seed=4, top_k=20, logprobs=2),
    )]
    outputs = server.generate_all(requests, 4)
    assert any(output.completion.speculation.num_accepted_tokens > 0 for output in outputs)
    harness.wait_until(lambda: audit(server).num_replayed == before.num_replayed + len(requests), 60,
                       "all requests are replayed")
    after = audit(server)
    assert after.num_mismatches == 0 and not after.biased
    assert after.num_samples == before.num_samples, "no token of these was plainly sampled"
    assert health(server) == SERVING


def test_every_plainly_sampled_token_is_a_sample(server):
    before = audit(server)
    outputs = server.generate_all(
        # The length is fixed, because on a busy machine the controller may find that drafting does not pay.
        [(PROMPTS[i % 4], dict(max_tokens=100, ignore_eos=True, temperature=0.8, draft_length=4)) for i in range(16)], 4)
    sources = {source for output in outputs for source in output.sources}
    assert len(sources) >= 3, "accepted, recovered and bonus"
    after = audit(server)
    assert after.num_samples - before.num_samples == sum(len(output.token_ids) for output in outputs)
    # Six standard deviations each, which is a probability of 2e-9.
    assert abs(after.uniformity_z) < 6 and abs(after.draft_mode_z) < 6
    assert after.draft_mode_z != 0
    assert not after.biased


@pytest.mark.parametrize("options", [dict(seed=9, reproducible=False), dict(lenience=0.5), dict(temperature=0, lenience=0.5)])
def test_requests_without_a_testable_promise_are_left_out(server, options):
    """A client's own seed repeats its draws, and lenience is not lossless."""
    before = audit(server)
    server.generate(PROMPTS[0], max_tokens=40, **options)
    # A request that is replayed follows.
    server.generate(PROMPTS[1], max_tokens=5, temperature=0)
    harness.wait_until(lambda: audit(server).num_replayed > before.num_replayed, 30, "the second is replayed")
    after = audit(server)
    assert after.num_replayed == before.num_replayed + 1
    assert after.num_samples == before.num_samples


@pytest.mark.parametrize("drafter", ["medusa", "eagle"])
def test_the_audit_agrees_with_heads_and_counts_their_samples_by_themselves(servers, drafter):
    server = servers(target=harness.EMBEDDED_TARGET, drafter="none", heads=harness.EMBEDDED_TARGET.parent / drafter, max_slots=8,
                     audit_fraction=1)
    kinds = [dict(draft_length=4, max_tree_nodes=nodes, drafter=drafter) for nodes in (0, 16)] + [dict(draft_length=0)]
    replayed = [(prompt, dict(max_tokens=32, **mode, **kind)) for prompt in PROMPTS[:2] for kind in kinds
                for mode in (dict(temperature=0), dict(seed=3))]
    server.generate_all(replayed, 4)
    # No seed of the client: these give samples.
    sampled = [(PROMPTS[i % 4], dict(max_tokens=80, ignore_eos=True, temperature=0.8, reproducible=False, **kind))
               for i in range(8) for kind in kinds]
    outputs = server.generate_all(sampled, 8)
    harness.wait_until(lambda: audit(server).num_replayed == len(replayed), 60, "all are replayed")
    stats = audit(server)
    assert stats.num_mismatches == 0 and not stats.biased
    assert stats.num_samples == sum(len(output.token_ids) for output in outputs)
    by_drafter = {of.name: of for of in stats.drafters}
    assert by_drafter.keys() == {drafter, "none"}
    assert sum(of.num_samples for of in stats.drafters) == stats.num_samples
    # Requests without drafts, and the first token of all.
    assert by_drafter["none"].num_samples >= 8 * 80 + 16
    # Each token that was accepted, and one that was not.
    assert by_drafter[drafter].num_samples > sum(output.completion.speculation.num_accepted_tokens for output in outputs) > 0
    # Six standard deviations each.
    assert all(abs(z) < 6 and not of.biased for of in stats.drafters for z in (of.uniformity_z, of.draft_mode_z))
    assert by_drafter[drafter].draft_mode_z != 0 and by_drafter["none"].draft_mode_z == 0


def test_the_audit_is_off_by_default(servers):
    server = servers()
    server.generate(PROMPTS[0], max_tokens=20, temperature=0)
    server.generate(PROMPTS[0], max_tokens=20)
    server.generate(PROMPTS[0], max_tokens=20, temperature=0)
    stats = audit(server)
    assert stats.num_replayed == 0 and stats.num_samples == 0


def test_a_target_whose_weights_changed_is_noticed(tmp_path, models):
    """The target's file is overwritten in place while the verifier maps it. Nothing restarts, and nothing is refused."""
    shape = dict(vocabulary_size=4096, hidden_size=64, layers=2, dtype="bf16", max_positions=32768, untied=True,
                 tokenizer_from=harness.TALES_TARGET)
    target = tmp_path / "target"
    shutil.copytree(models.random(seed=3, **shape), target)
    other = models.random(seed=4, **shape)
    server = harness.Server(tmp_path, target=target, draft=models.random(seed=3, **shape), audit_fraction=1, max_slots=4,
                            environment={"TANDEM_AUDIT_FAILS_READINESS": "true", **harness.PATIENT})
    try:
        # Replays wait for idle time, and there is none while the long request runs. It is given up long before its end.
        long = server.start(PROMPTS[0], temperature=0, max_tokens=30_000, ignore_eos=True)
        next(long)
        emitted = server.generate(PROMPTS[1], request_id="before", temperature=0, max_tokens=30, ignore_eos=True)
        with open(target / "model.safetensors", "r+b") as weights:
            weights.write((other / "model.safetensors").read_bytes())
        assert audit(server).num_replayed == 0, "the long request ended too early for this test"
        long.cancel()
        harness.wait_until(lambda: audit(server).num_mismatches == 1, 60, "the mismatch is found")
        harness.wait_until(lambda: health(server) == NOT_SERVING, 30, "readiness fails")
        harness.wait_until(lambda: re.search(r"audit: request before.*\n", server.log()), 30, "the log says which request")
        line = next(line for line in server.log().splitlines() if "audit: request before" in line)
        assert "differs first at output token " in line
        position = int(line.split("output token ")[1].split(":")[0])
        assert f"emitted {emitted.token_ids[position]}, replayed " in line
    finally:
        server.stop()
