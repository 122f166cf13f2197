"""Tests `--backend`: the workers with their CUDA code, which the shim of tests/simt runs in place of a GPU, and the workers' messages on a
machine without a GPU. The tests cover everything that a client sees, but not the speed of kernels."""

import shutil
import subprocess

import pytest

import cluster
import harness

PROMPT = [7 * i % 60 for i in range(70)]  # more than a page of the KV cache
LONG = dict(max_tokens=16, ignore_eos=True)
MODES = [dict(temperature=0), dict(temperature=0, repetition_penalty=1.3), dict(seed=5, reproducible=True), dict(seed=6),
         dict(seed=7, temperature=0.7, top_p=0.9),
         dict(seed=8, frequency_penalty=0.7, presence_penalty=0.2, logit_bias={3: 2.0, 9: -4.0}, min_tokens=6, top_k=12, min_p=0.02)]


@pytest.fixture(scope="module")
def pair(models):
    shape = dict(vocabulary_size=64, layers=1, max_positions=256)
    return models.random(hidden_size=16, seed=3, **shape), models.random(hidden_size=8, seed=4, **shape)


@pytest.fixture(scope="module")
def clusters(pair, tmp_path_factory):
    """The same pair on the shim and on the CPU. Each has a router that drafts and one that does not."""
    made = {}
    for backend in ["cuda", "cpu"]:
        executables = {f"{name}_executable": harness.BINARY_DIR / "tests" / f"tandem-{binary}-simt"
                       for name, binary in [("verifier", "verifier"), ("drafter", "draft")]} if backend == "cuda" else {}
        made[backend] = cluster.Cluster(tmp_path_factory.mktemp(backend), *pair, worker_arguments=["--backend", backend,
                                                                                                   "--max-slots", 4], **executables)
        router = made[backend].router("--heartbeat-timeout", 20)
        harness.wait_until(lambda: router.info().drafter_attached and router.info().ring_transport, 30, "the drafter is attached")
    yield made
    for one in made.values():
        one.close()


@pytest.fixture(scope="module")
def shim_executables(tmp_path_factory):
    """A folder from which `tandem serve` starts workers that compute on the shim."""
    folder = tmp_path_factory.mktemp("bin")
    # `tandem` searches for the others beside its real path, so a link would not work.
    shutil.copy(harness.BINARY_DIR / "bin" / "tandem", folder)
    (folder / "tandem-router").symlink_to(harness.BINARY_DIR / "bin" / "tandem-router")
    for worker in ("tandem-verifier", "tandem-draft"):
        (folder / worker).symlink_to(harness.BINARY_DIR / "tests" / f"{worker}-simt")
    return folder


def test_a_worker_says_what_it_computes_on(clusters):
    info = clusters["cuda"].routers[0].info()
    assert info.backend == "cuda"
    assert clusters["cpu"].routers[0].info().backend == "cpu"
    assert "compute capability" in clusters["cuda"].verifier.log()


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_drafting_changes_nothing_and_both_backends_agree(clusters, mode):
    on_gpu, on_cpu = (clusters[backend].routers[0] for backend in ["cuda", "cpu"])
    is_exact = mode.get("temperature") == 0 or mode.get("reproducible")
    plain = on_gpu.generate(PROMPT, draft_length=0, **mode, **LONG)
    assert plain.bytes == on_cpu.generate(PROMPT, draft_length=0, **mode, **LONG).bytes
    drafted = on_gpu.generate(PROMPT, draft_length=3, **mode, **LONG)
    assert drafted.completion.speculation.num_draft_tokens > 0
    # The drafter and the verifier use the same uniforms at the same positions.
    assert drafted.bytes == on_cpu.generate(PROMPT, draft_length=3, **mode, **LONG).bytes
    if is_exact:
        assert drafted.bytes == plain.bytes


def test_draft_rows_stay_on_the_gpu(clusters):
    router = clusters["cuda"].routers[0]
    assert router.info().ring_transport == "cuda_ipc"
    assert "refused" not in router.log()


@pytest.mark.parametrize("transport", ["shm", "inline"])
def test_other_transports_carry_the_same_rows(clusters, transport):
    options = dict(seed=6, draft_length=3, **LONG)
    want = clusters["cuda"].routers[0].generate(PROMPT, **options)
    assert want.completion.speculation.num_draft_tokens > 0
    other = clusters["cuda"].router("--transport", transport, "--heartbeat-timeout", 20)
    try:
        harness.wait_until(lambda: other.info().ring_transport == transport, 30, f"there is a ring of {transport}")
        assert other.generate(PROMPT, **options).bytes == want.bytes
    finally:
        other.kill()


def test_a_drafter_that_dies_leaves_a_ring_that_is_replaced(clusters):
    one = clusters["cuda"]
    router = one.routers[0]
    options = dict(seed=6, reproducible=True, draft_length=2, **LONG)
    want = router.generate(PROMPT, **options).bytes
    for _ in range(4):  # more often than the number of rings that may wait for drafters that still have them open
        losses = router.load().num_drafter_losses
        stream = router.stream(PROMPT, **options)
        harness.wait_until(lambda: stream.num_tokens > 2, 60, "tokens come")
        one.drafter.kill()
        one.drafter.start()
        assert stream.result().bytes == want
        harness.wait_until(lambda: router.load().num_drafter_losses > losses, 30, "the loss is noticed")
        harness.wait_until(lambda: router.info().drafter_attached, 30, "the drafter is back")
        harness.wait_until(lambda: router.info().ring_transport == "cuda_ipc", 30, "there is a new ring")
    assert router.generate(PROMPT, seed=6, draft_length=3, **LONG).completion.speculation.num_draft_tokens > 0


def test_logprobs_and_a_prompt_found_in_the_cache(clusters):
    on_gpu, on_cpu = (clusters[backend].routers[0] for backend in ["cuda", "cpu"])
    options = dict(temperature=0, logprobs=3, max_tokens=5, ignore_eos=True)
    got = on_gpu.generate(PROMPT, **options)
    want = on_cpu.generate(PROMPT, **options)
    for ours, theirs in zip(got.logprobs, want.logprobs, strict=True):
        assert [top.token_id for top in ours.top] == [top.token_id for top in theirs.top]
        assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-3)
    again = on_gpu.generate(PROMPT, **options)
    assert again.bytes == got.bytes
    assert again.completion.usage.cached_prompt_tokens >= 64


def test_several_at_once_and_a_verifier_that_dies(clusters):
    router = clusters["cuda"].routers[0]
    options = dict(temperature=0, draft_length=2, **LONG)
    prompts = [PROMPT[:20 + 9 * i] for i in range(4)]
    want = [router.generate(prompt, **options).bytes for prompt in prompts]
    streams = [router.stream(prompt, **options) for prompt in prompts]
    harness.wait_until(lambda: any(stream.num_tokens > 2 for stream in streams), 60, "tokens come")
    clusters["cuda"].verifier.kill()
    clusters["cuda"].verifier.start()
    assert [stream.result().bytes for stream in streams] == want


@pytest.mark.parametrize("drafter", ["medusa", "eagle", "pass"])
def test_heads_beside_the_target_change_nothing(clusters, models, pair, tmp_path, drafter):
    kind = {"medusa": dict(draft_heads=3), "eagle": dict(eagle=True), "pass": dict(look_ahead=3)}[drafter]
    heads = models.random(hidden_size=16, seed=5, vocabulary_size=64, layers=1, max_positions=256, embedding_scale=1.0, **kind)
    one = cluster.Cluster(tmp_path / "cluster", pair[0], worker_arguments=["--backend", "cuda", "--max-slots", 4],
                          verifier_arguments=["--heads", heads],
                          verifier_executable=harness.BINARY_DIR / "tests" / "tandem-verifier-simt")
    try:
        router = one.router("--heartbeat-timeout", 20)
        for mode in (dict(temperature=0), dict(seed=5, reproducible=True)):
            want = clusters["cpu"].routers[0].generate(PROMPT, draft_length=0, **mode, **LONG)
            for nodes in (0, 12):
                got = router.generate(PROMPT, draft_length=3, max_tree_nodes=nodes, drafter=drafter, **mode, **LONG)
                assert got.bytes == want.bytes
                assert got.completion.speculation.drafter == drafter and got.completion.speculation.num_draft_tokens > 0
        # A verifier that dies comes back with its heads, and computes the rows of the prompt again.
        stream = router.stream(PROMPT, draft_length=3, temperature=0, drafter=drafter, **LONG)
        harness.wait_until(lambda: stream.num_tokens > 2 or stream.done, 60, "tokens come")
        one.verifier.kill()
        one.verifier.start()
        assert stream.result().bytes == clusters["cpu"].routers[0].generate(PROMPT, draft_length=0, temperature=0, **LONG).bytes
    finally:
        one.close()


@pytest.mark.parametrize("lost", [["tandem-verifier"], ["tandem-draft"], ["tandem-verifier", "tandem-draft"]], ids=" and ".join)
def test_a_worker_that_has_lost_its_device_is_restarted(pair, shim_executables, tmp_path, lost):
    losses = tmp_path / "losses"  # see tests/simt/fake_runtime.h
    losses.mkdir()
    options = dict(temperature=0, draft_length=2, max_tokens=48, ignore_eos=True)
    server = harness.Server(tmp_path, target=pair[0], draft=pair[1], backend="cuda", max_slots=4, heartbeat_timeout=20,
                            executables=shim_executables, environment={"TANDEM_SIMT_LOSSES": str(losses)})

    def drafts():
        info = server.info()
        return info.drafter_attached and info.ring_transport == "cuda_ipc"

    try:
        harness.wait_until(drafts, 30, "the drafter is attached")
        want = server.generate(PROMPT, **options).bytes
        before = {name: server.child(name) for name in lost}
        assert None not in before.values()
        streams = [cluster.Stream(server.stub, PROMPT, 120, options)]
        harness.wait_until(lambda: streams[0].num_tokens > 2, 60, "tokens come")
        for name in lost:
            (losses / name).touch()

        def is_lost():
            """Each process takes its file at a call of its device. Only streams cause such calls, so there must always be one."""
            if streams[-1].done:
                streams.append(cluster.Stream(server.stub, PROMPT, 120, options))
            return not any(losses.iterdir())

        harness.wait_until(is_lost, 60, "the device is lost")
        assert all(stream.result().bytes == want for stream in streams)
        for name, pid in before.items():
            harness.wait_until(lambda: server.child(name) not in (pid, None), 30, f"another {name} runs")
        harness.wait_until(drafts, 30, "drafting goes on")
        again = server.generate(PROMPT, **options)
        assert again.bytes == want
        assert again.completion.speculation.num_draft_tokens > 0
        log = server.log()
        assert log.count("the device's context is lost, and this process ends, to be started again: ") == len(lost)
        for name in lost:
            assert f"{name.removeprefix('tandem-')} exited with status 1; starting it again" in log
    finally:
        server.stop()


def run_worker(model, *arguments):
    command = [harness.BINARY_DIR / "bin" / "tandem-verifier", "--model", model, "--listen", "127.0.0.1:0", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_without_a_gpu_it_says_why_and_serves_on_the_cpu(pair):
    wants_gpu = run_worker(pair[0], "--backend", "cuda", "--max-slots", "1")
    if wants_gpu.stdout.readline().startswith("ready: "):
        wants_gpu.terminate()
        wants_gpu.communicate()
        pytest.skip("this machine has a GPU")
    _, error = wants_gpu.communicate()
    assert wants_gpu.returncode == 1
    assert "without CUDA" in error or "no NVIDIA driver is installed" in error or "GPU" in error
    takes_either = run_worker(pair[0], "--backend", "auto", "--max-slots", "1")
    assert takes_either.stdout.readline().startswith("ready: ")
    takes_either.terminate()
    _, log = takes_either.communicate()
    assert takes_either.returncode == 0
    assert "CUDA is not used: " in log
