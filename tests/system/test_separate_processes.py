"""Tests the three executables without a supervisor, over TCP: one pair of workers, several routers, and workers that come late or never
come back."""

import os
import subprocess
import threading
import time

import grpc
import pytest

import harness
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb
from tandem.v1 import generate_pb2_grpc

GREEDY = dict(temperature=0, ignore_eos=True)


class Process:
    """An executable that prints `ready: ADDRESS`."""

    def __init__(self, name, *arguments, temp_dir):
        self.process = subprocess.Popen([harness.BINARY_DIR / "bin" / name, *map(str, arguments)], stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True,
                                        env={**os.environ, "TMPDIR": str(temp_dir), "XDG_RUNTIME_DIR": str(temp_dir)})
        self.address = None

    def wait_ready(self):
        timer = threading.Timer(60, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        assert line.startswith("ready: "), "ended before it was ready"
        self.address = line.split()[1]
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        return self.process.wait(25)


@pytest.fixture
def start(tmp_path):
    running = []

    def get(name, *arguments):
        listen = [] if "--listen" in arguments else ["--listen", "127.0.0.1:0"]
        running.append(Process(name, *listen, *arguments, temp_dir=tmp_path))
        return running[-1].wait_ready()

    yield get
    for process in reversed(running):
        if process.process.poll() is None:
            process.kill()


def connect(router):
    return generate_pb2_grpc.GenerationStub(grpc.insecure_channel(router.address, [("grpc.use_local_subchannel_pool", 1)]))


def generate(stub, prompt, **options):
    return harness.Output.read(stub.Generate(harness.request(prompt, **options), timeout=60))


def info(stub):
    return stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=30)


def start_workers(start):
    return (start("tandem-verifier", "--model", harness.TALES_TARGET), start("tandem-draft", "--model", harness.TALES_DRAFT))


def start_router(start, verifier, drafter, *arguments):
    return start("tandem-router", "--target", harness.TALES_TARGET, "--verifier", verifier, "--drafter", drafter, *arguments)


def test_two_routers_at_once_over_tcp(start):
    verifier, drafter = start_workers(start)
    stubs = [connect(start_router(start, verifier.address, drafter.address)) for _ in range(2)]
    want = generate(stubs[0], PROMPTS[0], max_tokens=200, draft_length=0, **GREEDY).bytes
    streams = [stub.Generate(harness.request(PROMPTS[0], max_tokens=200, draft_length=k, **GREEDY), timeout=60)
               for stub in stubs for k in (0, 3, 6)]
    assert [harness.Output.read(stream).bytes for stream in streams] == [want] * 6
    for stub in stubs:
        harness.wait_until(lambda: info(stub).drafter_attached, 30, "the drafter is attached")
        sampled = generate(stub, PROMPTS[0], max_tokens=50, draft_length=4)
        assert sampled.completion.speculation.num_accepted_tokens > 0


def test_a_router_that_is_killed_leaves_its_slots_to_others(start):
    verifier = start("tandem-verifier", "--model", harness.TALES_TARGET, "--max-slots", "1")
    first = start_router(start, verifier.address, "none")
    stream = connect(first).Generate(harness.request(PROMPTS[0], max_tokens=900, **GREEDY))
    next(iter(stream))
    first.kill()
    second = connect(start_router(start, verifier.address, "none"))
    began = time.monotonic()
    assert len(generate(second, PROMPTS[0], max_tokens=4, **GREEDY).token_ids) == 4
    assert time.monotonic() - began < 20  # the call's own deadline is far later; test_faults.py measures the time


def test_a_drafter_may_come_late(start, tmp_path):
    verifier = start("tandem-verifier", "--model", harness.TALES_TARGET)
    address = f"unix:{tmp_path}/draft.sock"
    stub = connect(start_router(start, verifier.address, address, "--drafter-wait", "0.2"))
    assert not info(stub).drafter_attached
    alone = generate(stub, PROMPTS[0], max_tokens=40, **GREEDY)
    assert set(alone.sources) == {pb.TOKEN_SOURCE_PLAIN}
    start("tandem-draft", "--model", harness.TALES_DRAFT, "--listen", address)
    harness.wait_until(lambda: info(stub).drafter_attached, 30, "the drafter is attached")
    together = generate(stub, PROMPTS[0], max_tokens=40, draft_length=4, **GREEDY)
    assert together.bytes == alone.bytes
    assert together.completion.speculation.num_accepted_tokens > 0


def test_a_verifier_that_never_comes_back_ends_streams_with_their_count(start, models):
    target = models.random(vocabulary_size=4096, hidden_size=64, layers=2, dtype="bf16", max_positions=8192, seed=3,
                           tokenizer_from=harness.TALES_TARGET)
    verifier = start("tandem-verifier", "--model", target)
    router = start("tandem-router", "--target", target, "--verifier", verifier.address, "--verifier-timeout", "0.5",
                   "--stream-buffer-bytes", 1 << 28)  # nobody reads the streams until the verifier is dead
    stub = connect(router)
    stream = stub.Generate(harness.request(PROMPTS[0], max_tokens=8000, **GREEDY), timeout=60)
    count = len(next(stream).token_ids)  # the request has a slot; simultaneous calls may be served in any order
    queued = [stub.Generate(harness.request(PROMPTS[0], max_tokens=8000, **GREEDY), timeout=60) for _ in range(20)]
    verifier.kill()
    with pytest.raises(grpc.RpcError) as error:
        for response in stream:
            count += len(response.token_ids)
            assert not response.HasField("completion")
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    assert dict(error.value.trailing_metadata())["tandem-emitted-tokens"] == str(count)
    for waiting in queued:
        with pytest.raises(grpc.RpcError) as error:
            harness.Output.read(waiting)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    # New requests do not wait for a verifier that is known to be gone.
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as error:
        generate(stub, PROMPTS[0], max_tokens=1)
    assert error.value.code() == grpc.StatusCode.UNAVAILABLE and time.monotonic() - began < 20
    assert router.stop() == 0
