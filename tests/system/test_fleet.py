"""Tests several worker pods behind several routers, as separate processes. Outputs are those of one pod, the load spreads, and pods that
die, come and go break no stream."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request

import grpc
import pytest

import cluster
import harness
from ports import free_ports
from prompts import PROMPTS

MODES = [dict(temperature=0), dict(seed=11), dict(seed=12, temperature=0.7, top_p=0.9)]
LONG = dict(max_tokens=4000, ignore_eos=True)
ENDLESS = dict(max_tokens=15_000, ignore_eos=True)  # a stream that must still run at some later step, and is then given up
HEARTBEAT_SECONDS = 0.5  # common/rpc/heartbeat.h


class Pod:
    """A verifier and its drafter. With `host`, they listen there on `ports`. Otherwise they listen on Unix sockets."""

    def __init__(self, folder, name, target, draft, host=None, ports=(0, 0), arguments=()):
        self.workers = [cluster.Worker(folder, executable, "--model", model, "--threads", 1, *arguments, tag=f"-{name}")
                        for executable, model in (("tandem-verifier", target), ("tandem-draft", draft))]
        for worker, port in zip(self.workers, ports):
            if host is not None:
                worker.address = f"{host}:{port}"
                worker.arguments[worker.arguments.index("--listen") + 1] = worker.address
        self.start()

    def start(self):
        for worker in self.workers:
            worker.start()

    @property
    def verifier(self):
        return self.workers[0]

    def kill(self):
        for worker in self.workers:
            if worker.alive():
                worker.kill()

    def open_slots(self):
        """Returns the open slots of all routers, according to the verifier."""
        return self.verifier.pong().num_open_slots


class Routers:
    def __init__(self, folder, target):
        self._folder = folder
        self._target = target
        self.all = []

    def start(self, verifiers, drafters, *arguments, executable=None):
        router = cluster.Router(self._folder, "tandem-router", "--target", self._target, "--verifier", verifiers, "--drafter",
                                drafters, "--admin", "127.0.0.1:0", "--stream-buffer-bytes", 1 << 28, *arguments,
                                tag=f"-{len(self.all)}", executable=executable)
        self.all.append(router)
        return router.start()


@pytest.fixture(scope="module")
def folders(models):
    """A target with some hundred microseconds per token, and a drafter that agrees with it because it is the same model."""
    target = models.random(vocabulary_size=4096, hidden_size=64, layers=2, dtype="bf16", max_positions=16384, seed=3,
                           tokenizer_from=harness.TALES_TARGET)
    return dict(target=target, draft=target)


@pytest.fixture(scope="module")
def pods(tmp_path_factory, folders):
    folder = tmp_path_factory.mktemp("pods")
    running = [Pod(folder, name, **folders) for name in "abc"]
    yield running
    for pod in running:
        pod.kill()


@pytest.fixture
def routers(tmp_path, folders):
    started = Routers(tmp_path, folders["target"])
    yield started
    for router in started.all:
        if router.alive():
            router.kill()


def addresses(pods):
    return [",".join(pod.workers[i].address for pod in pods) for i in range(2)]


def admin_address(router):
    return re.search(r" metrics: http://(\S+)/metrics$", router.log(), re.MULTILINE).group(1)


def page(router, path):
    with urllib.request.urlopen(f"http://{admin_address(router)}{path}", timeout=30) as response:
        return response.read().decode()


def metrics(router):
    return page(router, "/metrics")


def num_pods(router, state):
    return int(float(re.search(rf'^tandem_worker_pods{{[^}}]*state="{state}"}} (\S+)$', metrics(router), re.MULTILINE).group(1)))


def wait_for_pods(router, ready, lost=0, timeout=30):
    harness.wait_until(lambda: (num_pods(router, "ready"), num_pods(router, "lost")) == (ready, lost), timeout,
                       f"{ready} pods are ready and {lost} lost")


class Undisturbed:
    """The outputs of a router with its own single pod."""

    def __init__(self, router):
        self._router = router
        self._known = {}
        self._beginnings = {}

    def __call__(self, prompt, **options):
        key = (prompt, tuple(sorted(options.items())))
        if key not in self._known:
            self._known[key] = self._router.generate(prompt, **options).bytes
        return self._known[key]

    def beginning(self, count, prompt, **options):
        """Returns the first tokens of an output. Outputs are computed in thousands of tokens, and the longest one is kept."""
        key = (prompt, tuple(sorted(options.items())))
        if len(self._beginnings.get(key, ())) < count:
            self._beginnings[key] = self._router.generate(prompt, **{**options, "max_tokens": -(-count // 1000) * 1000}).token_ids
        return self._beginnings[key][:count]


@pytest.fixture(scope="module")
def want(tmp_path_factory, folders):
    """Returns the undisturbed outputs: want(prompt, **options) -> bytes."""
    folder = tmp_path_factory.mktemp("alone")
    pod = Pod(folder, "alone", **folders)
    router = Routers(folder, folders["target"]).start(*addresses([pod]))
    yield Undisturbed(router)
    router.kill()
    pod.kill()


def check_that_they_go_on(streams, asked, want):
    """Checks that streams that were asked for with ENDLESS get a thousand more tokens, and that no token differs. Gives them up."""
    marks = [stream.num_tokens for stream in streams]
    harness.wait_until(lambda: all(stream.done or stream.num_tokens >= mark + 1000 for stream, mark in zip(streams, marks)), 120,
                       "the streams go on")
    for stream, mark, (prompt, options) in zip(streams, marks, asked):
        said = stream.cancel()
        assert len(said) >= mark + 1000
        assert said == want.beginning(len(said), prompt, **options)


def test_outputs_are_those_of_one_pod(pods, routers, want):
    both = [routers.start(*addresses(pods)) for _ in range(2)]
    for router in both:
        wait_for_pods(router, 3)
        assert router.info().max_slots == 3 * 32
        harness.wait_until(lambda: router.info().drafter_attached, 30, "a drafter is attached")
    requests = [(prompt, dict(max_tokens=60, ignore_eos=True, **mode)) for prompt in PROMPTS[:8] for mode in MODES]
    streams = [both[i % 2].stream(prompt, **options) for i, (prompt, options) in enumerate(requests)]
    outputs = [stream.result().bytes for stream in streams]
    assert outputs == [want(prompt, **options) for prompt, options in requests]
    for router in both:
        load = router.load()
        assert (load.num_running, load.num_queued, load.num_finished) == (0, 0, len(requests) // 2)


def test_a_router_sees_what_another_has_placed(pods, routers, want):
    a, b = both = [routers.start(*addresses(pods)) for _ in range(2)]
    for router in both:
        wait_for_pods(router, 3)
    plain = dict(**ENDLESS, **MODES[0], draft_length=0)  # plain streams last longer
    asked = [(PROMPTS[i], plain) for i in range(3)]
    # The second router would find the free pod by chance in one of three rounds, and in all rounds once in 81 runs.
    for _ in range(4):
        harness.wait_until(lambda: all(pod.open_slots() == 0 for pod in pods), 30, "all pods are free")
        streams = [a.stream(PROMPTS[i], **plain) for i in range(2)]
        harness.wait_until(lambda: sorted(pod.open_slots() for pod in pods) == [0, 1, 1], 30, "the first router uses two pods")
        free = next(pod for pod in pods if pod.open_slots() == 0)
        time.sleep(3 * HEARTBEAT_SECONDS)  # the second router learns of it, and nothing shows when
        streams.append(b.stream(PROMPTS[2], **plain))
        harness.wait_until(lambda: streams[2].num_tokens > 0, 30, "the third stream runs")
        assert not any(stream.done for stream in streams), "the streams are too short to see where they run"
        assert free.open_slots() == 1
        check_that_they_go_on(streams, asked, want)


def test_killing_a_pod_breaks_no_stream(pods, routers, want):
    both = [routers.start(*addresses(pods)) for _ in range(2)]
    for router in both:
        wait_for_pods(router, 3)
    asked = [(PROMPTS[i], dict(**ENDLESS, **MODES[i % 3])) for i in range(6)]
    streams = [both[i % 2].stream(prompt, **options) for i, (prompt, options) in enumerate(asked)]
    harness.wait_until(lambda: all(stream.num_tokens > 20 for stream in streams), 60, "all streams run")
    harness.wait_until(lambda: pods[0].open_slots() > 0, 30, "the first pod has streams")
    assert not any(stream.done for stream in streams)
    pods[0].kill()
    try:
        for router in both:
            wait_for_pods(router, 2, 1)
            harness.wait_until(lambda: json.loads(page(router, "/live.json"))["state"]["pods"] == {"total": 3, "ready": 2}, 30,
                               "the live page has it too")
        top = subprocess.run([harness.BINARY_DIR / "bin" / "tandem", "top", "--admin", admin_address(both[0]), "--once"],
                             capture_output=True, text=True)
        assert "● pods: 2 of 3" in top.stdout
        # A new request does not have to wait.
        assert both[0].generate(PROMPTS[7], max_tokens=5, **MODES[0]).bytes == want(PROMPTS[7], max_tokens=5, **MODES[0])
        check_that_they_go_on(streams, asked, want)
        assert any(re.search(r"worker pod: lost; [1-9][0-9]* requests move to others", router.log()) for router in both)
    finally:
        pods[0].start()
    for router in both:
        wait_for_pods(router, 3)
        assert router.load().num_verifier_losses == 1
    # The pod serves again.
    asked = [(PROMPTS[i], dict(**ENDLESS, **MODES[0])) for i in range(3)]
    streams = [both[0].stream(prompt, **options) for prompt, options in asked]
    harness.wait_until(lambda: pods[0].open_slots() > 0, 30, "the pod that came back has a stream")
    check_that_they_go_on(streams, asked, want)


def test_a_pod_that_is_told_to_stop_ends_its_streams_first(tmp_path, routers, folders, want):
    pods = [Pod(tmp_path, name, **folders, arguments=("--drain-seconds", 60, "--admin", "127.0.0.1:0")) for name in ("goes", "stays")]
    going, staying = pods
    try:
        router = routers.start(*addresses(pods))
        wait_for_pods(router, 2)
        asked = [(PROMPTS[i], dict(**ENDLESS, **MODES[i], draft_length=0)) for i in range(2)]  # plain streams last longer
        streams = [router.stream(prompt, **options) for prompt, options in asked]
        harness.wait_until(lambda: [pod.open_slots() for pod in pods] == [1, 1], 30, "each pod has a stream")
        ready = re.search(r" metrics: (http://\S+)/metrics$", going.verifier.log(), re.MULTILINE).group(1) + "/readyz"
        assert urllib.request.urlopen(ready, timeout=30).status == 200
        for worker in going.workers:
            worker.process.terminate()
        harness.wait_until(lambda: "verifier: drains" in router.log(), 30, "the router is told")
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(ready, timeout=30)
        assert error.value.code == 503
        assert not any(stream.done for stream in streams), "the streams are too short to see where they run"
        later = [router.stream(PROMPTS[i], max_tokens=40, **MODES[0]) for i in range(2, 6)]
        assert [stream.result().bytes for stream in later] == [want(PROMPTS[i], max_tokens=40, **MODES[0]) for i in range(2, 6)]
        assert going.open_slots() == 1, "a pod that was told to stop got a new request"
        check_that_they_go_on(streams, asked, want)
        assert [worker.process.wait(30) for worker in going.workers] == [0, 0], "they end once nothing is left to do"
        assert "requests move to others" not in router.log()
        assert router.generate(PROMPTS[6], max_tokens=5, **MODES[0]).bytes == want(PROMPTS[6], max_tokens=5, **MODES[0])
        # A second signal ends the pod at once. Streams continue on other pods if there are any, and here there is none.
        options = dict(**ENDLESS, **MODES[0])
        stream = router.stream(PROMPTS[7], **options)
        harness.wait_until(lambda: staying.open_slots() == 1, 30, "the stream runs")
        for worker in staying.workers:
            worker.process.terminate()
        harness.wait_until(lambda: router.log().count("verifier: drains") == 2, 30, "the router is told")
        assert staying.verifier.alive()
        for worker in staying.workers:
            worker.process.terminate()
        assert [worker.process.wait(30) for worker in staying.workers] == [0, 0]
        assert not stream.done
        going.start()  # the stream continues when a pod is there again
        check_that_they_go_on([stream], [(PROMPTS[7], options)], want)
        assert router.terminate() == 0
    finally:
        for pod in pods:
            pod.kill()


def test_a_pod_of_another_model_is_refused(tmp_path, pods, routers, models, want):
    other = models.random(vocabulary_size=4096, hidden_size=32, layers=1, dtype="bf16", max_positions=4096, seed=9,
                          tokenizer_from=harness.TALES_TARGET)
    stranger = Pod(tmp_path, "stranger", other, other)
    try:
        for worker in stranger.workers:
            worker.freeze()  # the first pod that attaches decides what all must serve
        router = routers.start(*addresses([pods[0], stranger, pods[1]]))
        wait_for_pods(router, 2, 1)
        for worker in stranger.workers:
            worker.thaw()
        harness.wait_until(lambda: "must serve one model" in router.log(), 30, "the log says why")
        wait_for_pods(router, 2, 1)
        streams = [router.stream(PROMPTS[i], max_tokens=40, **MODES[0]) for i in range(4)]
        assert [stream.result().bytes for stream in streams] == [want(PROMPTS[i], max_tokens=40, **MODES[0]) for i in range(4)]
        assert router.terminate() == 0
    finally:
        stranger.kill()


def with_one_number_changed(folder, to):
    """Makes a model that differs from `folder`'s in one bit of the last weight."""
    shutil.copytree(folder, to)
    weights = to / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.chmod(0o644)
    weights.write_bytes(content)
    return to


def test_a_pod_of_other_weights_in_one_name_is_refused(tmp_path, pods, routers, folders, want):
    name = pathlib.Path(folders["target"]).name
    retrained = Pod(tmp_path, "retrained", with_one_number_changed(folders["target"], tmp_path / name), folders["draft"])
    try:
        for worker in retrained.workers:
            worker.freeze()  # the first pod that attaches decides what all must serve
        router = routers.start(*addresses([pods[0], retrained]))
        wait_for_pods(router, 1, 1)
        for worker in retrained.workers:
            worker.thaw()
        harness.wait_until(lambda: "its weights or constants of config.json are not those" in router.log(), 30, "the log says why")
        wait_for_pods(router, 1, 1)
        assert router.stream(PROMPTS[0], max_tokens=40, **MODES[0]).result().bytes == want(PROMPTS[0], max_tokens=40, **MODES[0])
        assert router.terminate() == 0
    finally:
        retrained.kill()


# No name server is asked for a name with such a long part, so the name can only be in a file.
LONG_NAME = "pods." + 64 * "x"


def test_pods_join_and_leave_by_their_name(tmp_path, routers, folders, want, monkeypatch):
    hosts = ["127.0.1.1", "127.0.1.2"]
    ports = free_ports(2, hosts)
    pods = [Pod(tmp_path, f"dns-{i}", **folders, host=host, ports=ports) for i, host in enumerate(hosts)]
    names = tmp_path / "hosts"
    changes = 0

    def list_pods(*of):
        """Sets the resolver's answers from now on. The resolver reads a file again if its time differs by a second."""
        nonlocal changes
        changes += 1
        new = tmp_path / "hosts.new"
        new.write_text("".join(f"{host} {LONG_NAME}\n" for host in of))
        os.utime(new, (time.time() + 10 * changes,) * 2)
        new.rename(names)

    list_pods(hosts[0])
    monkeypatch.setenv("LD_PRELOAD", "libnss_wrapper.so")
    monkeypatch.setenv("NSS_WRAPPER_HOSTS", str(names))
    try:
        router = routers.start(f"dns:{LONG_NAME}:{ports[0]}", f"dns:{LONG_NAME}:{ports[1]}", "--discover-seconds", "0.2")
        monkeypatch.undo()
        wait_for_pods(router, 1)
        asked = [(PROMPTS[i], dict(**ENDLESS, **MODES[i])) for i in range(2)]
        first = router.stream(asked[0][0], **asked[0][1])
        harness.wait_until(lambda: pods[0].open_slots() == 1, 30, "the stream runs at the first pod")

        list_pods(*hosts)
        wait_for_pods(router, 2)
        second = router.stream(asked[1][0], **asked[1][1])
        harness.wait_until(lambda: pods[1].open_slots() == 1, 30, "the new pod takes a stream")

        list_pods(hosts[1])
        harness.wait_until(lambda: "not in the list any more" in router.log(), 30, "the router notices that the pod left")
        third = router.stream(PROMPTS[2], **LONG, **MODES[2])
        harness.wait_until(lambda: third.num_tokens > 0, 30, "the third stream runs")
        assert pods[0].open_slots() == 1, "a pod that left got a new request"
        check_that_they_go_on([first], asked[:1], want)
        wait_for_pods(router, 1)
        pods[0].kill()
        check_that_they_go_on([second], asked[1:], want)
        assert third.result().bytes == want(PROMPTS[2], **LONG, **MODES[2])

        # A name without an address changes nothing.
        list_pods()
        harness.wait_until(lambda: f"worker pods: dns:{LONG_NAME}" in router.log(), 30, "the router says that nothing is found")
        assert router.generate(PROMPTS[3], max_tokens=5, **MODES[0]).bytes == want(PROMPTS[3], max_tokens=5, **MODES[0])
        assert router.terminate() == 0
    finally:
        for pod in pods:
            pod.kill()


@pytest.mark.parametrize("verifiers, drafters, says", [
    ("unix:/a,unix:/b", "unix:/c", "got 1 addresses for 2 verifiers"),
    ("unix:/a,unix:/a", "none", "is given twice"),
    ("dns:pods", "none", "want dns:NAME:PORT"),
    ("dns:pods:1", "dns:others:2", "share a host"),
])
def test_impossible_pods_are_named(tmp_path, verifiers, drafters, says):
    ended = subprocess.run([harness.BINARY_DIR / "bin" / "tandem-router", "--target", harness.TALES_TARGET, "--listen",
                            f"unix:{tmp_path}/r.sock", "--verifier", verifiers, "--drafter", drafters],
                           capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1 and says in ended.stderr


def test_the_router_waits_for_a_name_without_address(tmp_path, folders):
    router = subprocess.Popen([harness.BINARY_DIR / "bin" / "tandem-router", "--target", folders["target"], "--listen",
                               f"unix:{tmp_path}/r.sock", "--verifier", f"dns:{LONG_NAME}:7001"],
                              stderr=subprocess.PIPE, text=True)
    try:
        assert any(f"worker pods: dns:{LONG_NAME}" in line for line in router.stderr)
        with grpc.insecure_channel(f"unix:{tmp_path}/r.sock", cluster.OWN_CHANNEL) as channel:
            stub = cluster.generate_pb2_grpc.GenerationStub(channel)
            with pytest.raises(grpc.RpcError) as error:
                harness.Output.read(stub.Generate(harness.request("x"), timeout=30, wait_for_ready=True))
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    finally:
        router.terminate()
        assert router.wait(25) == 0
        router.stderr.close()
