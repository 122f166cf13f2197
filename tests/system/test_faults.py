"""Tests workers that hang, routers that die, and requests that kill: what continues, what is freed, and when."""

import os
import signal
import threading
import time

import grpc
import pytest

import cluster
import harness

LEASE_SECONDS = 4  # common/rpc/heartbeat.h
FREED_SECONDS = 5  # time in which workers must free everything that a lost router held
# Additional time to observe an event on a machine that also does other work.
SLACK_SECONDS = 1.5
LONG = dict(max_tokens=4000, ignore_eos=True)
PROMPTS = [[300 + i * step % 3000 for i in range(100)] for step in (7, 11, 13, 17)]
MODES = [dict(temperature=0), dict(seed=5), dict(seed=6, temperature=0.7), dict(temperature=0)]


@pytest.fixture(scope="module")
def model(models):
    """A model with about 0.3 ms per token: thousands of tokens in a second or two, even with two workers on one core."""
    return models.random(vocabulary_size=4096, hidden_size=64, layers=2, dtype="bf16", max_positions=8192, seed=3,
                         tokenizer_from=harness.TALES_TARGET)


@pytest.fixture
def make_cluster(tmp_path):
    made = []

    def get(*arguments, **options):
        made.append(cluster.Cluster(tmp_path / f"cluster{len(made)}", *arguments, **options))
        return made[-1]

    yield get
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def want(model, tmp_path_factory):
    """Returns the output of an undisturbed router without a drafter: [prompt] -> (ids, text)."""
    pair = cluster.Cluster(tmp_path_factory.mktemp("want") / "cluster", model, worker_arguments=["--threads", 1])
    streams = [pair.router().stream(prompt, **mode, **LONG) for prompt, mode in zip(PROMPTS, MODES)]
    wanted = [stream.result().bytes for stream in streams]
    pair.close()
    return wanted


def start_all(router, timeout=120):
    return [router.stream(prompt, timeout=timeout, draft_length=3, **mode, **LONG) for prompt, mode in zip(PROMPTS, MODES)]


def wait_for_tokens(streams, count):
    harness.wait_until(lambda: all(stream.num_tokens >= count or stream.done for stream in streams), 30, f"{count} tokens")


# ---------------------------------------------------------------- hung workers


@pytest.mark.parametrize("name", ["tandem-draft", "tandem-verifier"])
def test_a_worker_that_hangs_is_killed_and_restarted(tmp_path, model, want, name):
    server = harness.Server(tmp_path, target=model, draft=model, threads=1, heartbeat_timeout=1)
    try:
        streams = [cluster.Stream(server.stub, prompt, 120, dict(draft_length=3, **mode, **LONG))
                   for prompt, mode in zip(PROMPTS, MODES)]
        wait_for_tokens(streams, 100)
        hung = server.child(name)
        stopped_at = time.monotonic()
        os.kill(hung, signal.SIGSTOP)
        harness.wait_until(lambda: server.child(name) not in (hung, None), 15, f"another {name} runs")
        seconds = time.monotonic() - stopped_at
        assert [stream.result().bytes for stream in streams] == want
        assert "hangs: it gave no sign of life for 1 s, and is killed" in server.log()
        print(f"{name}: replaced {seconds:.2f} s after SIGSTOP")
        # Pings are half a second apart, so the last sign of life may be this old.
        assert 0.45 <= seconds <= 1.5 + SLACK_SECONDS
        harness.wait_until(lambda: server.info().drafter_attached, 30, "drafting goes on")
    finally:
        server.stop()


def test_by_default_silence_counts_after_three_seconds(make_cluster, model, want):
    pair = make_cluster(model, model, worker_arguments=["--threads", 1])
    router = pair.router()
    streams = start_all(router)
    wait_for_tokens(streams, 100)
    pair.drafter.freeze()
    stopped_at = time.monotonic()
    harness.wait_until(lambda: not router.info().drafter_attached, 10, "the drafter is given up")
    seconds = time.monotonic() - stopped_at
    pair.drafter.thaw()
    harness.wait_until(lambda: router.info().drafter_attached, 30, "the drafter is attached again")
    assert [stream.result().bytes for stream in streams] == want
    assert 2.4 <= seconds <= 3.5 + SLACK_SECONDS


def test_a_busy_worker_is_not_a_hung_one(make_cluster, models):
    # A batch of this prompt takes several seconds, in which the compute thread reports nothing.
    large = models.random(vocabulary_size=4096, hidden_size=1024, layers=8, heads=16, kv_heads=4, head_size=64,
                          intermediate_size=4096, dtype="bf16", max_positions=4096, seed=4, tokenizer_from=harness.TALES_TARGET)
    pair = make_cluster(large, worker_arguments=["--threads", 1],
                        router_arguments=["--heartbeat-timeout", 1, "--step-rows", 4096, "--step-seconds", 60])
    router = pair.router()
    stream = router.stream([300 + i % 3000 for i in range(2500)], temperature=0, max_tokens=2, ignore_eos=True)
    began = time.monotonic()
    harness.wait_until(lambda: pair.verifier.computing(), 10, "it computes")
    assert len(stream.result().token_ids) == 2
    seconds = time.monotonic() - began
    assert seconds > 2, "the batch was too short to tell"
    assert router.load().num_verifier_losses == 0
    print(f"one batch of {seconds:.1f} s with a heartbeat timeout of 1 s: no loss")


# ---------------------------------------------------------------- dead and stopped routers


@pytest.mark.parametrize("how", ["kill", "freeze"])
def test_a_router_that_is_gone_leaves_nothing_at_the_workers(make_cluster, model, want, how):
    pair = make_cluster(model, model, worker_arguments=["--threads", 1, "--max-slots", len(PROMPTS)])
    survivor = pair.router()

    def free_pages():
        # Workers report the pages with each batch. One request, always the same, makes the report current.
        survivor.generate(PROMPTS[0], temperature=0, max_tokens=2, draft_length=2)
        load = survivor.load()
        return load.num_free_kv_pages, load.num_free_draft_kv_pages

    pages = free_pages()
    rings = [worker.open_files("/memfd:") for worker in pair.workers()]
    router = pair.router()
    streams = start_all(router)  # they take every slot of both workers
    wait_for_tokens(streams, 50)
    with_two = [worker.open_files("/memfd:") for worker in pair.workers()]
    assert all(more > one for more, one in zip(with_two, rings)), "each router has a ring of its own"

    gone_at = time.monotonic()
    getattr(router, how)()
    waiting = survivor.stream(PROMPTS[3], **MODES[3], **LONG, draft_length=3)
    harness.wait_until(lambda: waiting.num_tokens > 0, 20, "the other router's request has a slot")
    slot_seconds = time.monotonic() - gone_at
    harness.wait_until(lambda: [worker.open_files("/memfd:") for worker in pair.workers()] == rings, 10, "rings are freed")
    ring_seconds = time.monotonic() - gone_at
    print(f"{how}: slots freed after {slot_seconds:.2f} s, rings after {ring_seconds:.2f} s")
    assert max(slot_seconds, ring_seconds) <= (FREED_SECONDS if how == "freeze" else SLACK_SECONDS)
    assert waiting.result().bytes == want[3]
    load = survivor.load()
    assert (load.num_running, load.num_verifier_losses, load.num_drafter_losses) == (0, 0, 0)
    harness.wait_until(lambda: free_pages() == pages, 30, "its pages are free")

    if how == "freeze":  # the router wakes up, finds its sessions gone, and continues
        router.thaw()
        assert [stream.result().bytes for stream in streams] == want


def test_a_router_that_sleeps_for_less_than_its_lease_loses_nothing(make_cluster, model, want):
    pair = make_cluster(model, model, worker_arguments=["--threads", 1])
    router = pair.router()
    streams = start_all(router)
    wait_for_tokens(streams, 50)
    router.freeze()
    time.sleep(LEASE_SECONDS - 1.5)  # the test is that nothing happens meanwhile
    router.thaw()
    assert [stream.result().bytes for stream in streams] == want
    load = router.load()
    assert (load.num_verifier_losses, load.num_drafter_losses) == (0, 0)


def test_several_routers_share_the_workers_and_one_dies(make_cluster, model, want):
    pair = make_cluster(model, model, worker_arguments=["--threads", 1])
    routers = [pair.router() for _ in range(3)]
    streams = [start_all(router) for router in routers]
    wait_for_tokens([stream for some in streams for stream in some], 100)
    routers[1].kill()
    for some in (streams[0], streams[2]):
        assert [stream.result().bytes for stream in some] == want
    for router in (routers[0], routers[2]):
        load = router.load()
        assert (load.num_running, load.num_verifier_losses, load.num_drafter_losses) == (0, 0, 0)
    # Everything that the dead router held can be used.
    again = start_all(routers[0])
    assert [stream.result().bytes for stream in again] == want


# ---------------------------------------------------------------- a request that kills


BOMB = 4000  # a token that the neighbors' prompts and outputs do not have


class Respawner(threading.Thread):
    """Restarts a worker whenever it dies, and counts the deaths."""

    def __init__(self, worker):
        super().__init__(daemon=True)
        self.worker = worker
        self.deaths = 0
        self.stopping = threading.Event()
        self.start()

    def run(self):
        while not self.stopping.wait(0.01):
            if not self.worker.alive() and not self.stopping.is_set():
                self.deaths += 1
                self.worker.kill()
                self.worker.start()

    def stop(self):
        self.stopping.set()
        self.join()


def test_a_poison_request_costs_two_crashes_and_no_neighbor(make_cluster, model, want):
    assert not any(BOMB in ids for ids, _ in want)
    pair = make_cluster(model, model, verifier_executable=harness.BINARY_DIR / "tests" / "crashing_verifier",
                        verifier_arguments=[BOMB], worker_arguments=["--threads", 1])
    router = pair.router()
    respawner = Respawner(pair.verifier)
    try:
        streams = start_all(router)
        wait_for_tokens(streams, 100)
        poison = PROMPTS[0][:50] + [BOMB] + PROMPTS[1][:20]
        with pytest.raises(grpc.RpcError) as error:
            router.generate(poison, temperature=0, max_tokens=10)
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert "quarantined" in error.value.details()
        assert respawner.deaths <= 2
        began = time.monotonic()
        with pytest.raises(grpc.RpcError) as error:
            router.generate(poison, temperature=0, max_tokens=10)
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION and time.monotonic() - began < 1
        assert [stream.result().bytes for stream in streams] == want
        assert respawner.deaths <= 2
        assert router.load().num_verifier_losses == respawner.deaths
    finally:
        respawner.stop()
