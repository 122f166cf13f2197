"""Clients of tandem-gateway that take what they can: many, slow, stalled, broken, and strangers."""

import concurrent.futures
import contextlib
import json
import os
import re
import selectors
import signal
import socket
import ssl
import threading
import time

import grpc
import pytest

import certificates
import harness
from tandem.v1 import generate_pb2 as pb
from tandem.v1 import generate_pb2_grpc
from test_gateway import read_all

PROMPT = "Once upon a time there was a king who"
TOKEN, OTHER_TOKEN, STRANGE_TOKEN = "first-token-0123456789", "second-token-0123456789", "strange-token-0123456789"
MIB = 1 << 20


def post(body, path="/v1/completions", headers=""):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
            ).encode() + body


def head(*headers, path="/v1/completions"):
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def memory(gateway):
    """Returns the resident memory of the process, and its largest one ever, in bytes."""
    with open(f"/proc/{gateway.process.pid}/status") as status:
        text = status.read()
    return tuple(1024 * int(re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE).group(1)) for name in ("VmRSS", "VmHWM"))


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None


def events_of(answer):
    """Returns the data of the events of an answer in pieces, without the last one if it is cut."""
    body, rest = b"", answer.partition(b"\r\n\r\n")[2]
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        if not size or int(size, 16) == 0 or len(rest) < int(size, 16):
            break
        body, rest = body + rest[:int(size, 16)], rest[int(size, 16) + 2:]
    return [line.removeprefix(b"data: ") for line in body.split(b"\n\n")[:-1]]


def text_of(answer):
    """Returns (text, finish_reason) of a stream, as far as it came."""
    choices = [choice for event in events_of(answer) if event.startswith(b"{") for choice in json.loads(event).get("choices", ())]
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]
    return "".join(choice["text"] for choice in choices), reasons[-1] if reasons else None


class Crowd:
    """Many clients of one thread. Each sends its bytes and reads until its answer has ended."""

    END = b"0\r\n\r\n"

    def __init__(self, gateway, requests):
        self._selector = selectors.DefaultSelector()
        self.answers = [b""] * len(requests)
        self._left = 0
        for number, request in enumerate(requests):
            one = gateway.connect()
            one.setblocking(False)
            assert one.send(request) == len(request)
            self._selector.register(one, selectors.EVENT_READ, number)
            self._left += 1

    def step(self, timeout=1):
        for key, _ in self._selector.select(timeout):
            try:
                data = key.fileobj.recv(65536)
            except ConnectionResetError:
                data = b""
            self.answers[key.data] += data
            if not data or self.answers[key.data].endswith(self.END):
                self._selector.unregister(key.fileobj)
                key.fileobj.close()
                self._left -= 1
        return self._left

    def run(self, seconds=60):
        deadline = time.monotonic() + seconds
        while self.step():
            assert time.monotonic() < deadline, f"{self._left} are left"
        return self.answers


class HttpNeighbors:
    """Two clients that stream the same texts again and again. Each must always get its text."""

    def __init__(self, gateway, server):
        self._gateway = gateway
        prompts = [PROMPT, "In a deep forest there lived"]
        self._want = {prompt: server.generate(prompt, temperature=0, max_tokens=24).text for prompt in prompts}
        self._stop = threading.Event()
        self.counts, self.slowest, self.wrong = dict.fromkeys(prompts, 0), 0, []
        self._threads = [threading.Thread(target=self._run, args=(prompt,)) for prompt in prompts]
        for thread in self._threads:
            thread.start()

    def _run(self, prompt):
        while not self._stop.is_set():
            start = time.monotonic()
            try:
                events = self._gateway.events(prompt=prompt, temperature=0, max_tokens=24)
                text = "".join(choice["text"] for event in events[:-1] for choice in json.loads(event)["choices"])
                if (text, events[-1]) != (self._want[prompt], "[DONE]"):
                    self.wrong.append(text)
            except Exception as error:  # noqa: BLE001
                self.wrong.append(error)
            self.slowest = max(self.slowest, time.monotonic() - start)
            self.counts[prompt] += 1

    def wait(self, more=1):
        """Waits until each has had so many answers from now on."""
        want = {prompt: count + more for prompt, count in self.counts.items()}
        harness.wait_until(lambda: all(self.counts[prompt] >= count for prompt, count in want.items()), 30, "neighbors are served")
        assert self.wrong == []

    def stop(self):
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self.wrong == []
        return self.slowest


@pytest.fixture(scope="module")
def server(servers):
    return servers(max_queue=4000, environment=harness.PATIENT)


def test_a_thousand_streams_get_their_text_in_little_memory(server, gateways):
    gateway = gateways(server.address)
    want = server.generate(PROMPT, temperature=0, max_tokens=3).text
    before = memory(gateway)[0]
    crowd = Crowd(gateway, [post(dict(prompt=PROMPT, temperature=0, max_tokens=3, stream=True))] * 1000)
    answers = crowd.run()
    assert {text_of(answer) for answer in answers} == {(want, "length")}
    assert all(b"data: [DONE]\n\n" in answer for answer in answers)
    assert memory(gateway)[1] - before < 64 * MIB, "at most 64 KiB for each stream, at any time"


def test_bad_clients_take_little_memory_and_hurt_nobody(server, gateways):
    gateway = gateways(server.address)
    neighbors = HttpNeighbors(gateway, server)
    neighbors.wait()
    before = memory(gateway)[0]
    with contextlib.ExitStack() as stack:
        def connect(*pieces, receive=None):
            one = stack.enter_context(socket.socket())
            if receive is not None:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive)
            one.connect((gateway.host, gateway.port))
            one.settimeout(30)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for piece in pieces:
                    one.sendall(piece)
            return one

        # They stay until the end.
        for _ in range(8):
            connect(post(dict(prompt=[PROMPT] * 8, max_tokens=200, ignore_eos=True, logprobs=20, stream=True)), receive=2048)
            connect(post(dict(prompt=PROMPT, max_tokens=100, ignore_eos=True)) + post(dict(prompt=PROMPT)) * 400)  # pipelining
        for _ in range(100):
            connect(head("Content-Length: 100000"), b'{"prompt": "' + b"a" * 50_000)
        neighbors.wait()

        # They are refused.
        long_header = connect(b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Long: ", b"a" * 65536, b"\r\n\r\n")
        assert status_of(read_all(long_header)) == 431
        endless = connect(head("Transfer-Encoding: chunked"), *[b"10000\r\n" + b" " * 65536 + b"\r\n"] * 160)
        assert status_of(read_all(endless)) == 413
        tiny = connect(head("Transfer-Encoding: chunked"), b"1;" + b"x" * 40_000)
        assert status_of(read_all(tiny)) == 400
        million = connect(post(dict(prompt="a" * 1_000_000, max_tokens=1), headers="Connection: close\r\n"))
        answer = read_all(million)
        assert status_of(answer) in (400, 413) and b'"param":"prompt"' in answer
        neighbors.wait()
        assert memory(gateway)[1] - before < 64 * MIB
    assert neighbors.stop() < 20


def test_a_slow_reader_keeps_no_more_than_a_little(server, gateways):
    """Without the limit, the gateway would hold what 64 prompts give, which is megabytes."""
    gateway = gateways(server.address, write_seconds=1)
    before = memory(gateway)[0]
    body = dict(prompt=[PROMPT] * 64, temperature=0, max_tokens=300, ignore_eos=True, logprobs=20, stream=True)
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect((gateway.host, gateway.port))
        one.sendall(post(body))
        harness.wait_until(lambda: server.info().load.num_running > 0, 10, "it runs")
        neighbors = HttpNeighbors(gateway, server)
        harness.wait_until(lambda: "the client does not read" in gateway.log(), 60, "the client is cut off")
        neighbors.stop()
        assert memory(gateway)[1] - before < 8 * MIB
    harness.wait_until(lambda: server.info().load.num_running == 0, 5, "the slots are free")


def test_an_answer_that_is_no_stream_has_a_size(server, gateways):
    gateway = gateways(server.address, max_answer_bytes=50_000)
    body = dict(prompt=[PROMPT] * 8, temperature=0, max_tokens=100, ignore_eos=True, logprobs=20)
    error, _ = gateway.error(413, **body)
    assert error["code"] == "request_too_large" and "50000 bytes" in error["message"]
    assert gateway.events(**body)[-1] == "[DONE]"
    assert gateway.complete(prompt=PROMPT, max_tokens=5)


@pytest.mark.parametrize("where", ["loopback", "token"])
def test_every_path_is_guarded(server, gateways, tmp_path, where):
    """The paths are those of the program, so that a new one is tested too."""
    source = (harness.SOURCE_DIR / "services" / "gateway" / "calls" / "routes.cc").read_text()
    paths = re.findall(r'\{"(/[\w/.-]*)", Page::\w+(, true)?', source)
    assert len(paths) >= 8
    tokens = tmp_path / "tokens"
    tokens.write_text(f"client {TOKEN}\n")
    gateway = gateways(server.address, **(dict(token_file=tokens) if where == "token" else {}))
    for path, is_post in [*paths, ("/v1/models/anything", ""), ("/nothing", "")]:
        for bearer in (None, STRANGE_TOKEN, TOKEN + "x", ""):
            method, body = ("POST", b"{}") if is_post else ("GET", None)
            headers = {} if bearer is None else {"Authorization": f"Bearer {bearer}"}
            if where == "loopback":  # a page of another site, which the browser sends to this machine
                got = gateway.call(method, path, body, {**headers, "Host": "example.org"})
                assert got[0] == 421, path
                assert not is_post or gateway.call(method, path, body, {"Content-Type": "text/plain"})[0] == 415, path
            else:
                assert gateway.call(method, path, body, headers)[0] == (200 if path == "/health" else 401), path
                assert gateway.call(method, path, body, {"Authorization": f"Bearer {TOKEN}"})[0] not in (401, 403, 421), path


def test_tokens_are_in_no_log(gateways, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"client {TOKEN}\n")
    router = harness.Server(tmp_path, token_file=tokens, environment={"TANDEM_LOG_LEVEL": "debug"})
    try:
        gateway = gateways(router.address, log_level="debug")
        guard = gateways(router.address, log_level="debug", token_file=tokens, router_token_file=tokens)
        body = dict(prompt=PROMPT, max_tokens=1)
        for one in (gateway, guard):
            for token in (TOKEN, STRANGE_TOKEN):
                for value in (f"Bearer {token}", f"bearer  {token}", f"Basic {token}", token):
                    one.call("POST", "/v1/completions", body, {"Authorization": value})
                one.call("GET", f"/v1/models?api_key={token}", headers={"Authorization": f"Bearer {token}"})
                with one.connect() as raw:
                    raw.sendall(f"GET / HTTP/1.1\r\nAuthorization: Bearer {token}\r\nContent-Length: x\r\n\r\n".encode())
                    read_all(raw)
            harness.wait_until(lambda one=one: one.log().count("http request") >= 12, 5, "the log has the requests")
        for log in (gateway.log(), guard.log(), router.log()):
            assert TOKEN not in log and STRANGE_TOKEN not in log
    finally:
        router.stop()


def test_a_gateway_that_is_killed_breaks_streams_of_http_alone(servers, gateways):
    """Their clients see that the streams broke, and no finish_reason that is not true."""
    server = servers(max_queue=4000, environment=harness.PATIENT)
    gateway = gateways(server.address)
    long = dict(temperature=0, max_tokens=700, ignore_eos=True)
    want = server.generate(PROMPT, **long)
    crowd = Crowd(gateway, [post(dict(long, prompt=PROMPT, stream=True))] * 16 +
                  [post(dict(prompt=PROMPT, temperature=0, max_tokens=3 + i, stream=True)) for i in range(16)])
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        streams = [pool.submit(server.generate, PROMPT, **long) for _ in range(4)]
        harness.wait_until(lambda: crowd.step(0.05) <= 24 and any(b"data: " in answer for answer in crowd.answers[:16]), 30,
                           "some streams have ended, and others run")
        os.kill(gateway.process.pid, signal.SIGKILL)
        answers = crowd.run()
        assert all(stream.result().bytes == want.bytes for stream in streams)
    broken = [answer for answer in answers if b"[DONE]" not in answer]
    assert len(broken) >= 8
    for answer in answers:
        text, reason = text_of(answer)
        assert want.text.startswith(text)
        is_whole = answer.endswith(Crowd.END)
        assert is_whole == (b"data: [DONE]\n\n" in answer)
        assert reason in (("length",) if is_whole else (None, "length"))
    for answer in answers[:16]:  # nothing ended a long one but its length
        text, reason = text_of(answer)
        assert (reason is None) == (text != want.text)
    harness.wait_until(lambda: server.info().load.num_running == 0, 10, "the slots are free")


def test_a_refusal_over_tls_reaches_a_client_that_still_sends(server, gateways, tmp_path):
    authority = certificates.Authority(tmp_path / "authority")
    identity = authority.issue("server")
    gateway = gateways(server.address, tls_certificate=identity.certificate, tls_key=identity.key)
    context = ssl.create_default_context(cafile=authority.certificate)
    for _ in range(10):
        with socket.create_connection((gateway.host, gateway.port), timeout=30) as raw, \
                context.wrap_socket(raw, server_hostname="localhost") as one:
            one.sendall(head("Content-Length: 99999999"))
            for _ in range(80):  # a connection that is reset would fail here, and might lose the answer
                one.sendall(b"a" * 65536)
            assert read_all(one).startswith(b"HTTP/1.1 413 ")


class OwnRouter(generate_pb2_grpc.GenerationServicer):
    """A router that knows one token, and answers when the test says so."""

    def __init__(self):
        self.answers = threading.Event()
        self.asked = threading.Event()
        self.num_gone = 0
        self.tokens = None
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        generate_pb2_grpc.add_GenerationServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _count_gone(self):
        self.num_gone += 1

    def _wait(self, context):
        metadata = dict(context.invocation_metadata())
        if self.tokens is not None and metadata.get("authorization") not in self.tokens:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such token")
        context.add_callback(self._count_gone)
        self.asked.set()
        while not self.answers.wait(0.02) and context.is_active():
            pass

    def GetServerInfo(self, request, context):  # noqa: N802
        self._wait(context)
        return pb.ServerInfo(model="secret-model")

    def Tokenize(self, request, context):  # noqa: N802
        self._wait(context)
        return pb.TokenizeResponse(ids=[1, 2])

    def stop(self):
        self.answers.set()
        self._server.stop(0).wait()


@pytest.fixture
def own_router():
    router = OwnRouter()
    yield router
    router.stop()


def test_the_health_is_known_soon(gateways, own_router):
    gateway = gateways(own_router.address)
    start = time.monotonic()
    assert gateway.call("GET", "/health")[0] == 503
    assert 1.5 < time.monotonic() - start < 6
    own_router.answers.set()
    assert gateway.call("GET", "/health")[0] == 200


def test_a_question_of_a_client_that_leaves_is_given_up(gateways, own_router):
    gateway = gateways(own_router.address)
    for request in (b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", post(dict(prompt="a"), "/tokenize")):
        before = own_router.num_gone
        own_router.asked.clear()
        with gateway.connect() as one:
            one.sendall(request)
            assert own_router.asked.wait(10)
        harness.wait_until(lambda: own_router.num_gone > before, 5, "the call has ended")  # noqa: B023


def test_a_second_signal_ends_questions_at_once(gateways, own_router):
    gateway = gateways(own_router.address)
    with gateway.connect() as models, gateway.connect() as completion:
        models.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        completion.sendall(post(dict(prompt=PROMPT)))  # asks for the model's name first
        assert own_router.asked.wait(10)
        start = time.monotonic()
        gateway.process.send_signal(signal.SIGTERM)
        harness.wait_until(lambda: "draining" in gateway.log(), 5, "it drains")
        assert gateway.stop() == 0
        assert time.monotonic() - start < 5


def test_the_name_of_the_model_is_for_those_whom_the_router_knows(gateways, own_router):
    gateway = gateways(own_router.address)
    own_router.answers.set()
    own_router.tokens = {f"Bearer {TOKEN}", f"Bearer {OTHER_TOKEN}"}
    body = dict(prompt="a", model="other")

    def ask(token):
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        status, _, answer = gateway.call("POST", "/tokenize", body, headers)
        return status, "secret-model" in json.dumps(answer)

    assert ask(TOKEN) == (404, True)
    assert ask(TOKEN) == (404, True)
    assert ask(STRANGE_TOKEN) == (401, False)
    assert ask(None) == (401, False)
    assert ask(OTHER_TOKEN) == (404, True)
    assert ask(STRANGE_TOKEN) == (401, False)
