"""Tests Qwen2 and Qwen3 as targets and as drafters. Random pairs in three processes give the output of the target alone.
tests/model/golden_test.cc compares their logits with transformers."""

import pytest

import cluster
import harness

ARCHITECTURES = ["qwen2", "qwen3"]
# Untied, because each stream would otherwise repeat one token (harness.Models.spoiled_double).
SHAPE = dict(vocabulary_size=512, hidden_size=64, layers=2, heads=4, kv_heads=2, head_size=32, intermediate_size=128, dtype="bf16",
             max_positions=512, seed=21, untied=True, embedding_scale=0.5)
MAX_TOKENS = 24
PROMPTS = [[(7 * i + 31 * j) % 500 for i in range(length)] for j, length in enumerate([1, 5, 17, 40, 66, 90])]
REQUESTS = [(prompt, dict(temperature=0, max_tokens=MAX_TOKENS, ignore_eos=True)) for prompt in PROMPTS]


@pytest.fixture(params=ARCHITECTURES, scope="module")
def architecture(request):
    return request.param


@pytest.fixture(scope="module")
def target(models, architecture):
    return models.random(architecture=architecture, **SHAPE)


@pytest.fixture(scope="module")
def plain(servers, target):
    outputs = servers(target=target, drafter="none", max_slots=8).generate_all(REQUESTS, concurrency=1)
    assert len({token for output in outputs for token in output.token_ids}) > 20, "the streams must tell contexts apart"
    return [output.bytes for output in outputs]


def test_a_pair_says_what_the_target_alone_says(servers, models, architecture, target, plain):
    # The drafter is right three times in four, so blocks are accepted, cut short and rolled back.
    drafter = models.spoiled_double(architecture=architecture, **SHAPE)
    server = servers(target=target, draft=drafter, max_slots=8)
    drafted = accepted = 0
    for draft_length in (1, 3, 8):
        requests = [(prompt, {**options, "draft_length": draft_length}) for prompt, options in REQUESTS]
        for concurrency in (1, 6):
            outputs = server.generate_all(requests, concurrency)
            assert [output.bytes for output in outputs] == plain, f"draft_length={draft_length}"
            drafted += sum(output.completion.speculation.num_draft_tokens for output in outputs)
            accepted += sum(output.completion.speculation.num_accepted_tokens for output in outputs)
    assert 0.2 < accepted / drafted < 0.95


@pytest.mark.parametrize("drafter", ["qwen2", "qwen3", "llama"])
def test_a_drafter_of_any_architecture_fits_where_the_vocabulary_is_the_same(servers, models, target, plain, drafter):
    small = {**SHAPE, "hidden_size": 32, "layers": 1, "heads": 2, "kv_heads": 1, "head_size": 16, "seed": 22}
    server = servers(target=target, draft=models.random(architecture=drafter, **small), max_slots=8)
    outputs = server.generate_all([(prompt, {**options, "draft_length": 3}) for prompt, options in REQUESTS], concurrency=6)
    assert [output.bytes for output in outputs] == plain
    assert sum(output.completion.speculation.num_draft_tokens for output in outputs) > 0


def test_the_cuda_workers_say_the_same(models, architecture, tmp_path):
    """Runs over the shim of tests/simt in place of a GPU."""
    shape = dict(vocabulary_size=64, layers=1, max_positions=256, architecture=architecture, untied=True)
    pair = models.random(hidden_size=16, seed=3, **shape), models.random(hidden_size=8, seed=4, **shape)
    said = {}
    for backend in ["cuda", "cpu"]:
        executables = {f"{name}_executable": harness.BINARY_DIR / "tests" / f"tandem-{binary}-simt"
                       for name, binary in [("verifier", "verifier"), ("drafter", "draft")]} if backend == "cuda" else {}
        folder = tmp_path / backend
        folder.mkdir()
        running = cluster.Cluster(folder, *pair, worker_arguments=["--backend", backend, "--max-slots", 4], **executables)
        try:
            router = running.router("--heartbeat-timeout", 20)
            options = dict(temperature=0, max_tokens=12, ignore_eos=True)
            said[backend] = [router.generate(PROMPTS[1], draft_length=length, **options) for length in (0, 3)]
        finally:
            running.close()
    plain_output, drafted = said["cuda"]
    assert drafted.completion.speculation.num_draft_tokens > 0
    assert drafted.bytes == plain_output.bytes
    assert [output.bytes for output in said["cpu"]] == [output.bytes for output in said["cuda"]]
