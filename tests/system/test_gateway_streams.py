"""Tests which streams a gateway opens to its router: one that many calls share, and others where it must."""

import collections
import concurrent.futures
import json
import socket
import threading
import time

import grpc
import pytest

import harness
from harness import wait_until
from prompts import PROMPTS
from tandem.v1 import generate_pb2_grpc

PROMPT = PROMPTS[0]


@pytest.fixture(scope="module")
def server(servers):
    return servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4)


class Relay(generate_pb2_grpc.GenerationServicer):
    """Stands between a gateway and the router, and counts calls. `knows_many`: whether it has GenerateMany. `options`: gRPC's."""

    def __init__(self, server, knows_many=True, options=()):
        self.stub, self.knows_many = server.stub, knows_many
        self.counts = collections.Counter()
        self.running = []  # streams of GenerateMany
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(64), options=options)
        generate_pb2_grpc.add_GenerationServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self):
        for call in self.running:
            call.cancel()
        self._server.stop(0).wait()

    def GetServerInfo(self, request, context):
        return self.stub.GetServerInfo(request)

    def Generate(self, request, context):
        self.counts["Generate"] += 1
        call = self.stub.Generate(request)
        context.add_callback(call.cancel)
        try:
            yield from call
        except grpc.RpcError as error:
            context.set_trailing_metadata(error.trailing_metadata())
            context.abort(error.code(), error.details())

    def GenerateMany(self, requests, context):
        self.counts["streams"] += 1
        if not self.knows_many:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no such method")

        def seen():
            for request in requests:
                self.counts[request.WhichOneof("action")] += 1
                yield request

        call = self.stub.GenerateMany(seen())
        self.running.append(call)
        context.add_callback(call.cancel)
        context.send_initial_metadata(call.initial_metadata())
        try:
            yield from call
        except grpc.RpcError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, error.details())


@pytest.fixture
def relayed(server, gateways):
    made = []

    def get(**options):
        relay = Relay(server, **options)
        made.append(relay)
        return relay, gateways(relay.address)

    yield get
    for relay in made:
        relay.stop()
    wait_until(lambda: server.info().load.num_running == 0, 20, "the slots are free")


def share(relay, gateway):
    """Waits until calls of the gateway share a stream."""
    wait_until(lambda: gateway.complete(prompt=PROMPT, max_tokens=1) and relay.counts["generate"] > 0, 20, "a call shares a stream")


def test_calls_share_a_stream(server, relayed):
    relay, gateway = relayed()
    share(relay, gateway)
    of_their_own = relay.counts["Generate"]
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda i: gateway.complete(prompt=PROMPTS[i % 3], temperature=0, max_tokens=20 + i), range(12)))
    for i, answer in enumerate(answers):
        want = server.generate(PROMPTS[i % 3], temperature=0, max_tokens=20 + i)
        assert answer["choices"][0]["text"] == want.text
    assert relay.counts["streams"] == 1 and relay.counts["Generate"] == of_their_own
    assert relay.counts["generate"] >= 13


def test_a_router_without_such_streams_is_served_as_before(server, relayed):
    relay, gateway = relayed(knows_many=False)
    for i in range(4):
        answer = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=10 + i)
        assert answer["choices"][0]["text"] == server.generate(PROMPT, temperature=0, max_tokens=10 + i).text
    assert relay.counts["Generate"] == 4 and relay.counts["generate"] == 0
    assert 1 <= relay.counts["streams"] <= 4, "it is tried now and then"


def test_long_requests_and_scored_prompts_have_streams_of_their_own(relayed):
    relay, gateway = relayed()
    share(relay, gateway)
    before = dict(relay.counts)
    gateway.complete(prompt=PROMPT, max_tokens=2, echo=True, logprobs=1)
    status, _, answer = gateway.call("POST", "/v1/completions", {"prompt": "a" * 20_000, "max_tokens": 2})
    assert status == 400 and "context" in answer["error"]["message"]
    assert relay.counts["Generate"] == before["Generate"] + 2 and relay.counts["generate"] == before["generate"]


def test_a_shared_stream_keeps_no_question_waiting(relayed):
    """A connection to the router carries one call at a time here."""
    relay, gateway = relayed(options=[("grpc.max_concurrent_streams", 1)])
    share(relay, gateway)
    assert gateway.call("GET", "/health")[0] == 200
    assert relay.counts["streams"] == 1


def test_a_client_that_leaves_cancels_its_call_alone(server, relayed):
    relay, gateway = relayed()
    share(relay, gateway)
    with gateway.connect() as one:
        body = json.dumps({"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "temperature": 0, "stream": True}).encode()
        one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                    (len(body), body))
        one.recv(100)
    answer = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=60)
    assert answer["choices"][0]["text"] == server.generate(PROMPT, temperature=0, max_tokens=60).text
    wait_until(lambda: relay.counts["cancel"] == 1, 10, "the call is canceled")
    wait_until(lambda: server.info().load.num_running == 0, 10, "the slot is free")
    assert relay.counts["streams"] == 1


def test_a_refusal_has_the_same_error_on_both_kinds_of_streams(relayed):
    relay, gateway = relayed(knows_many=False)
    shared_relay, shared = relayed()
    share(shared_relay, shared)
    for body in (dict(top_k=-7), dict(model="other"), dict(prompt=[10**6])):
        bodies = [one.call("POST", "/v1/completions", {"prompt": PROMPT, **body}) for one in (gateway, shared)]
        assert 400 <= bodies[0][0] == bodies[1][0] and bodies[0][2] == bodies[1][2]


def test_a_stream_that_breaks_ends_its_calls_and_another_one_follows(server, relayed):
    relay, gateway = relayed()
    share(relay, gateway)
    got = [b""] * 3

    def listen(i):
        with socket.create_connection((gateway.host, gateway.port)) as one:
            body = json.dumps({"prompt": PROMPT, "max_tokens": 900, "ignore_eos": True, "temperature": 0, "stream": True}).encode()
            one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
            while data := one.recv(65536):
                got[i] += data

    threads = [threading.Thread(target=listen, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: all(b"data: " in text for text in got), 20, "each has a token")
    relay.running[0].cancel()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive(), "the connection ends"
    for text in got:
        assert b'"finish_reason":"' not in text and b"[DONE]" not in text
        assert not text.endswith(b"0\r\n\r\n") and b'"error"' in text
    assert gateway.complete(prompt=PROMPT, max_tokens=3)["choices"][0]["finish_reason"] == "length"
    time.sleep(1.1)  # the pause between two tries
    before = relay.counts["generate"]
    wait_until(lambda: gateway.complete(prompt=PROMPT, max_tokens=1) and relay.counts["generate"] > before, 20, "a call shares a stream")
    assert relay.counts["streams"] == 2


def test_a_client_without_a_token_gets_nothing_through_the_stream_of_another(gateways, tmp_path):
    """The gateway has no token, and passes on those of its clients. The first one of them opens the stream."""
    tokens, client = tmp_path / "tokens", "c" * 40
    tokens.write_text(f"client {client}\n")
    tokens.chmod(0o600)
    server = harness.Server(tmp_path, target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, token_file=tokens)
    try:
        gateway = gateways(server.address)
        body = {"model": "target", "prompt": PROMPT, "max_tokens": 2}
        good = {"Authorization": f"Bearer {client}"}
        for _ in range(5):  # a stream is shared by then
            assert gateway.call("POST", "/v1/completions", body, good)[0] == 200
            time.sleep(0.05)
        for bad in ({}, {"Authorization": "Bearer b@d"}, {"Authorization": f"Bearer {'d' * 40}"}, {"Authorization": client}):
            for _ in range(2):
                assert gateway.call("POST", "/v1/completions", body, bad)[0] == 401
        assert gateway.call("POST", "/v1/completions", body, good)[0] == 200
    finally:
        server.stop()


def test_a_router_with_low_limits_refuses_nobody(server, servers, gateways):
    low = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4,
                  environment={"TANDEM_MAX_STREAM_CALLS": "4", "TANDEM_MAX_MESSAGE_BYTES": "4096"})
    gateway = gateways(low.address)
    gateway.complete(prompt=PROMPT, max_tokens=1)
    time.sleep(0.2)
    prompts = [PROMPT, PROMPT + " once upon a time" * 130]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda i: gateway.complete(prompt=prompts[i % 2], max_tokens=20 + i, ignore_eos=True), range(16)))
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [20 + i for i in range(16)]
