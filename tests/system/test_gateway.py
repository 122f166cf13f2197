"""Tests tandem-gateway from outside: OpenAI's HTTP API before a real server with the small pair.

Raw sockets speak where a client of HTTP would not say what the test wants to say.
"""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request

import grpc
import openai
import pytest

import certificates
import harness
import ports
from tandem.v1 import generate_pb2 as pb
from tandem.v1 import generate_pb2_grpc

PROMPT = "Once upon a time there was a king who"
CLIENT_TOKEN, ADMIN_TOKEN = "client-token-0123456789", "admin-token-0123456789"


def read_all(one):
    """Reads until the other end closes. Returns the bytes so far if it resets the connection."""
    got = b""
    try:
        while data := one.recv(65536):
            got += data
    except ConnectionResetError:
        pass
    return got


def read_answer(one):
    """Reads one answer with a Content-Length. Returns (status, body)."""
    got = b""
    while b"\r\n\r\n" not in got:
        data = one.recv(65536)
        assert data, got
        got += data
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
    while len(body) < length:
        body += one.recv(65536)
    assert len(body) == length
    return int(head.split()[1]), body


@pytest.fixture(scope="module")
def server(servers):
    return servers(environment=harness.PATIENT)


@pytest.fixture(scope="module")
def gateway(server, gateways):
    return gateways(server.address)


def assert_slots_are_free(server):
    harness.wait_until(lambda: server.info().load.num_running == 0, 5, "no request runs")


def test_small_pages(server, gateway):
    info = server.info()
    assert gateway.call("GET", "/health")[::2] == (200, "")
    assert gateway.call("GET", "/version")[2] == {"version": info.version}
    models = gateway.call("GET", "/v1/models")[2]
    assert models["object"] == "list" and len(models["data"]) == 1
    model = models["data"][0]
    assert (model["id"], model["object"], model["max_model_len"]) == (info.model, "model", info.max_context_tokens)
    assert gateway.call("GET", f"/v1/models/{info.model}")[2] == model
    assert gateway.error(404, "/v1/models/other", "GET", body=b"")[0]["code"] == "model_not_found"


def test_greedy_text_is_that_of_grpc(server, gateway):
    want = server.generate(PROMPT, temperature=0, max_tokens=40)
    answer = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=40)
    assert answer["object"] == "text_completion" and answer["model"] == server.info().model
    assert answer["id"].startswith("cmpl-") and abs(answer["created"] - time.time()) < 60
    assert answer["choices"] == [{"index": 0, "text": want.text, "logprobs": None, "finish_reason": "length", "stop_reason": None}]
    usage = answer["usage"]
    assert usage["prompt_tokens"] == want.completion.usage.prompt_tokens
    assert usage["completion_tokens"] == 40 and usage["total_tokens"] == 40 + usage["prompt_tokens"]
    assert 0 <= usage["prompt_tokens_details"]["cached_tokens"] <= usage["prompt_tokens"]
    assert usage["completion_tokens_details"] == {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}
    assert answer["speculation"]["num_accepted_tokens"] > 0
    ids = server.stub.Tokenize(pb.TokenizeRequest(text=PROMPT)).ids
    assert gateway.complete(prompt=list(ids), temperature=0, max_tokens=40)["choices"] == answer["choices"]


@pytest.mark.parametrize("options", [dict(temperature=0), dict(seed=7), dict(temperature=0, stop=["king"]), dict(temperature=0, logprobs=2),
                                     dict(temperature=0, echo=True), dict(temperature=0, echo=True, logprobs=1)], ids=str)
def test_a_stream_gives_what_the_whole_answer_gives(gateway, options):
    options = dict(options, prompt=PROMPT, max_tokens=48)
    want = gateway.complete(**options)["choices"][0]
    *events, last = gateway.events(**options)
    assert last == "[DONE]"
    events = [json.loads(event) for event in events]
    assert len({event["id"] for event in events}) == 1 and not any("usage" in event for event in events)
    choices = [choice for event in events for choice in event["choices"]]
    assert "".join(choice["text"] for choice in choices) == want["text"]
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(choices) - 1) + [want["finish_reason"]]
    assert choices[-1]["stop_reason"] == want["stop_reason"]
    if "logprobs" in options:
        for name, values in want["logprobs"].items():
            assert [value for choice in choices for value in choice["logprobs"][name]] == values


def test_usage_comes_last_in_a_stream_if_asked_for(gateway):
    whole = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=20)
    *events, usage, last = gateway.events(prompt=PROMPT, temperature=0, max_tokens=20, stream_options={"include_usage": True})
    assert last == "[DONE]"
    assert all(json.loads(event)["usage"] is None for event in events)
    usage = json.loads(usage)
    assert usage["choices"] == []
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage["usage"][name] == whole["usage"][name]


def test_logprobs_have_the_shape_of_completions(server, gateway):
    want = server.generate(PROMPT, temperature=0, max_tokens=12, logprobs=3, logprobs_with_text=True)
    choice = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=12, logprobs=3)["choices"][0]
    got = choice["logprobs"]
    assert got["tokens"] == [token.text for token in want.logprobs]
    assert got["token_logprobs"] == pytest.approx([token.logprob for token in want.logprobs], abs=1e-4)
    assert "".join(got["tokens"]) == choice["text"]
    assert got["text_offset"] == [len("".join(got["tokens"][:i])) for i in range(12)]
    for top, token in zip(got["top_logprobs"], want.logprobs):
        assert set(top) == {entry.text for entry in token.top} | {token.text}
    none = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=3, logprobs=0)["choices"][0]["logprobs"]
    assert [list(top) for top in none["top_logprobs"]] == [[token] for token in none["tokens"]]


def test_stops_end_the_text(gateway):
    text = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=40)["choices"][0]["text"]
    stop = text.split()[4]
    choice = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=40, stop=[stop, "never comes"])["choices"][0]
    assert choice["text"] == text[:text.index(stop)]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)
    kept = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=40, stop=stop, include_stop_str_in_output=True)["choices"][0]
    assert kept["text"] == text[:text.index(stop)] + stop


def test_a_list_of_prompts_gives_a_choice_for_each(gateway):
    prompts = [PROMPT, "In a deep forest there lived", "The end"] * 8  # more than run at once
    answer = gateway.complete(prompt=prompts, temperature=0, max_tokens=12)
    assert [choice["index"] for choice in answer["choices"]] == list(range(24))
    singles = [gateway.complete(prompt=prompt, temperature=0, max_tokens=12) for prompt in prompts[:3]]
    assert [choice["text"] for choice in answer["choices"]] == [one["choices"][0]["text"] for one in singles] * 8
    assert answer["usage"]["completion_tokens"] == 8 * sum(one["usage"]["completion_tokens"] for one in singles)
    texts = [""] * 24
    for event in gateway.events(prompt=prompts, temperature=0, max_tokens=12)[:-1]:
        for choice in json.loads(event)["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == [choice["text"] for choice in answer["choices"]]


def test_echo_repeats_prompts_of_both_kinds(server, gateway):
    text = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=8)["choices"][0]["text"]
    ids = list(server.stub.Tokenize(pb.TokenizeRequest(text=PROMPT)).ids)
    for prompt in (PROMPT, ids):
        assert gateway.complete(prompt=prompt, temperature=0, max_tokens=8, echo=True)["choices"][0]["text"] == PROMPT + text


def test_tokens_and_texts_are_turned_into_each_other(server, gateway):
    ids = list(server.stub.Tokenize(pb.TokenizeRequest(text=PROMPT)).ids)
    for prefix in ("", "/v1"):
        answer = gateway.call("POST", prefix + "/tokenize", {"prompt": PROMPT, "model": server.info().model})[2]
        assert answer == {"count": len(ids), "max_model_len": server.info().max_context_tokens, "tokens": ids, "token_strs": None}
        assert gateway.call("POST", prefix + "/tokenize", {"prompt": PROMPT, "add_special_tokens": False})[2]["tokens"] == ids[1:]
        assert gateway.call("POST", prefix + "/detokenize", {"tokens": ids[1:]})[2] == {"prompt": PROMPT}
    assert gateway.call("POST", "/detokenize", {"tokens": ids, "skip_special_tokens": True})[2] == {"prompt": PROMPT}
    assert gateway.call("POST", "/detokenize", {"tokens": ids})[2]["prompt"] != PROMPT
    assert gateway.error(404, "/tokenize", prompt="a", model="other")[0]["code"] == "model_not_found"


def test_options_reach_the_router(server, gateway):
    answer = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=30, speculation={"enabled": False})
    assert answer["speculation"]["num_draft_tokens"] == 0
    text = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=30, ignore_eos=True)["choices"][0]["text"]
    answer = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=30, ignore_eos=True, prediction={"type": "content", "content": text},
                              speculation={"drafter": "prediction", "draft_length": 4})
    assert answer["choices"][0]["text"] == text
    assert answer["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 0
    first = server.generate(PROMPT, temperature=0, max_tokens=1).token_ids[0]
    biased = gateway.complete(prompt=PROMPT, temperature=0, max_tokens=1, logit_bias={str(first): -100})["choices"][0]["text"]
    assert not text.startswith(biased)
    assert gateway.complete(prompt=PROMPT, n=1, best_of=1, suffix=None, unknown={"a": 1}, max_tokens=1)["choices"]


@pytest.mark.parametrize("fields, param", [
    (dict(), "prompt"), (dict(prompt=[]), "prompt"), (dict(prompt=""), "prompt"), (dict(prompt=7), "prompt"),
    (dict(prompt="a", n=0), "n"), (dict(prompt="a", best_of=3), "best_of"), (dict(prompt="a", suffix="b"), "suffix"),
    (dict(prompt="a", temperature="hot"), "temperature"), (dict(prompt="a", temperature=-1), "temperature"),
    (dict(prompt="a", top_p=2), "top_p"), (dict(prompt="a", max_tokens=0), "max_tokens"), (dict(prompt="a", max_tokens=1.5), "max_tokens"),
    (dict(prompt="a", logprobs=1000), "logprobs"), (dict(prompt="a", logit_bias={"x": 1}), "logit_bias"),
    (dict(prompt="a", stop=[1]), "stop"), (dict(prompt="a", prompt_logprobs=1), "prompt_logprobs"),
    (dict(prompt=[99999999]), "prompt"), (dict(prompt="a", stream_options={}), "stream_options"),
    (dict(prompt="a", speculation={"lenience": 0.5}), "speculation"),
    (dict(prompt="a", speculation={"drafter": "no"}), "speculation.drafter"),
    (dict(prompt="a", guided_json={}), "guided_json"), (dict(prompt="a", cache_salt="a"), "cache_salt"),
], ids=str)
def test_a_bad_field_is_refused_by_name(gateway, fields, param):
    error, _ = gateway.error(400, **fields)
    assert (error["type"], error["param"]) == ("invalid_request_error", param), error
    assert error["message"].startswith(param), error


def test_bad_requests_have_their_status(gateway):
    assert gateway.error(404, model="other", prompt="a")[0] | {"message": ""} == {
        "message": "", "type": "invalid_request_error", "param": "model", "code": "model_not_found"}
    assert gateway.error(404, "/v1/nothing")[0]["code"] == "unknown_url"
    assert gateway.error(405, method="GET", body=b"")[1]["Allow"] == "POST"
    assert gateway.error(405, "/v1/models")[1]["Allow"] == "GET, HEAD"
    gateway.error(400, body=b"{")
    gateway.error(400, body=b"[1]")
    gateway.error(400, body=b"[" * 100_000)
    gateway.error(400, body=b'{"prompt": "\xff"}')
    gateway.error(415, headers={"Content-Type": "text/plain"}, prompt="a")
    gateway.error(421, "/v1/models", "GET", headers={"Host": "example.org"}, body=b"")
    assert "Access-Control-Allow-Origin" not in gateway.call("GET", "/version", headers={"Origin": "http://example.org"})[1]
    for path, similar in {"/chat/completions": "/v1/chat/completions", "/v1/models/": "/v1/models"}.items():
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(gateway.url + path, timeout=10)
        assert missing.value.code == 404 and json.loads(missing.value.read())["error"]["message"].endswith(f"did you mean {similar}")


@pytest.fixture(scope="module")
def slow_target(models):
    """A model that computes a long output for longer than any test waits."""
    return models.random(vocabulary_size=4096, hidden_size=256, layers=4, heads=4, kv_heads=2, head_size=64, intermediate_size=768,
                         dtype="bf16", max_positions=16384, tokenizer_from=harness.TALES_TARGET)


def test_too_many_requests_are_told_when_to_come_back(servers, gateways, slow_target):
    server = servers(target=slow_target, max_slots=1, max_queue=1, environment=harness.PATIENT)
    gateway = gateways(server.address)
    streams = [server.start(PROMPT, temperature=0, max_tokens=15_000, ignore_eos=True)]
    next(streams[0])
    streams.append(server.start(PROMPT, temperature=0, max_tokens=15_000, ignore_eos=True))
    harness.wait_until(lambda: server.info().load.num_queued == 1, 10, "a request waits")
    error, headers = gateway.error(429, prompt=PROMPT)
    assert error["code"] == "rate_limit_exceeded" and int(headers["Retry-After"]) >= 1
    for stream in streams:
        stream.cancel()


def test_a_router_that_is_not_there_is_told_without_its_address(gateways, tmp_path):
    gateway = gateways(f"unix:{tmp_path}/router.sock")
    error, headers = gateway.error(503, prompt="a", model="m")
    assert error["code"] == "service_unavailable" and headers["Retry-After"] == "1"
    assert gateway.call("GET", "/health")[0] == 503


LONG = dict(prompt=PROMPT, temperature=0, max_tokens=900, ignore_eos=True)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_slot(servers, gateways, slow_target, stream):
    server = servers(target=slow_target, max_slots=1, environment=harness.PATIENT)
    gateway = gateways(server.address)
    body = json.dumps({**LONG, "max_tokens": 15_000, "stream": stream}).encode()
    with gateway.connect() as one:
        one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                    (len(body), body))
        harness.wait_until(lambda: server.info().load.num_running == 1, 10, "the request runs")
        if stream:
            assert b"200 OK" in one.recv(100)
    harness.wait_until(lambda: server.info().load.num_running == 0, 2, "the slot is free")
    harness.wait_until(lambda: "http_status=499" in gateway.log(), 2, "the log has the request")


def test_a_slow_reader_waits_and_is_cut_off(server, gateways):
    gateway = gateways(server.address, write_seconds=1)
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect((gateway.host, gateway.port))
        body = json.dumps({**LONG, "prompt": [PROMPT] * 64, "max_tokens": 500, "stream": True, "logprobs": 20}).encode()
        one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" %
                    (len(body), body))
        # Either nothing was written for a second, or too much waits for one of the calls.
        harness.wait_until(lambda: re.search("the client does not read|client too slow", gateway.log()), 60, "the client is cut off")
    assert_slots_are_free(server)
    assert gateway.complete(prompt=PROMPT, max_tokens=2)


def post(body, *, headers=b""):
    return b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers + b"\r\n" + body


def test_limits_of_size(server, gateways):
    gateway = gateways(server.address, max_body_bytes=10_000, max_header_bytes=2048)
    assert gateway.error(413, prompt="a" * 20_000)[0]["code"] == "request_too_large"
    with gateway.connect() as one:  # the announced length alone is too large
        one.sendall(post(b"", headers=b"Content-Length: 99999999999\r\n"))
        assert read_all(one).startswith(b"HTTP/1.1 413 ")
    with gateway.connect() as one:  # pieces are counted too
        one.sendall(post(b"", headers=b"Transfer-Encoding: chunked\r\n"))
        got = b""
        try:
            for _ in range(100):
                one.sendall(b"400\r\n" + b"a" * 1024 + b"\r\n")
        except (BrokenPipeError, ConnectionResetError):
            pass
        got = read_all(one)
        assert got.startswith(b"HTTP/1.1 413 ")
    with gateway.connect() as one:
        one.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"a" * 5000 + b"\r\n\r\n")
        assert read_all(one).startswith(b"HTTP/1.1 431 ")
    with gateway.connect() as one:
        one.sendall(b"no HTTP at all\r\n\r\n")
        assert read_all(one).startswith(b"HTTP/1.1 400 ")
    assert gateway.complete(prompt=PROMPT, max_tokens=2)


def test_bodies_that_arrive_together_have_a_limit(server, gateways):
    gateway = gateways(server.address, max_held_bytes=50_000)
    with gateway.connect() as one, gateway.connect() as two:
        one.sendall(post(b'{"prompt": "' + b"a" * 110_000, headers=b"Content-Length: 200000\r\n"))
        time.sleep(0.2)  # the bytes have no sign of their arrival
        two.sendall(post(b'{"prompt": "' + b"a" * 110_000, headers=b"Content-Length: 200000\r\n"))
        assert read_all(two).startswith(b"HTTP/1.1 503 ")
    harness.wait_until(lambda: gateway.call("POST", "/v1/completions", {"prompt": "a" * 1000, "max_tokens": 1})[0] == 200, 5, "room again")


def test_limits_of_time(server, gateways):
    gateway = gateways(server.address, request_seconds=0.5, idle_seconds=0.5)
    start = time.monotonic()
    with gateway.connect() as silent, gateway.connect() as header, gateway.connect() as body, gateway.connect() as chunks, \
            gateway.connect() as idle:
        header.sendall(b"POST /v1/comp")
        body.sendall(post(b'{"prompt": ', headers=b"Content-Length: 100\r\n"))
        chunks.sendall(post(b"1\r\n{\r\n", headers=b"Transfer-Encoding: chunked\r\n"))
        idle.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert read_answer(idle)[0] == 200
        assert read_all(silent) == b""
        for late in (header, body, chunks):
            assert read_all(late).startswith(b"HTTP/1.1 408 ")
        assert read_all(idle) == b""
    assert time.monotonic() - start < 5


def test_too_many_connections_are_turned_away(server, gateways):
    gateway = gateways(server.address, max_connections=2)
    with gateway.connect() as one, gateway.connect() as two:
        for connection in (one, two):
            connection.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert read_answer(connection)[0] == 200
        with gateway.connect() as three:
            assert read_all(three).startswith(b"HTTP/1.1 503 ")
    harness.wait_until(lambda: gateway.call("GET", "/version")[0] == 200, 5, "there is room again")


def test_requests_of_a_connection_are_answered_in_their_order(gateway):
    texts = ["One", "Two", "Three"]
    bodies = [json.dumps(dict(prompt=text, echo=True, temperature=0, max_tokens=5)).encode() for text in texts]
    with gateway.connect() as one:
        pieces = b"".join(post(body, headers=b"Content-Length: %d\r\n" % len(body)) for body in bodies)
        chunked = b"".join(b"%x\r\n%s\r\n" % (1, bodies[0][i:i + 1]) for i in range(len(bodies[0]))) + b"0\r\n\r\n"
        one.sendall(pieces + post(chunked, headers=b"Transfer-Encoding: chunked\r\n") + b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
        got = b""
        for text in [*texts, texts[0]]:
            status, body = read_one(one, got)
            got = body[1]
            assert status == 200 and json.loads(body[0])["choices"][0]["text"].startswith(text)
        assert read_one(one, got)[0] == 404


def read_one(one, got):
    """Reads an answer from a connection that may have sent more. Returns (status, (body, what follows))."""
    while b"\r\n\r\n" not in got:
        got += one.recv(65536)
    head, _, rest = got.partition(b"\r\n\r\n")
    length = int(re.search(rb"Content-Length: (\d+)", head).group(1))
    while len(rest) < length:
        rest += one.recv(65536)
    return int(head.split()[1]), (rest[:length], rest[length:])


def test_a_client_that_asks_first_may_send_its_body(gateway):
    body = json.dumps(dict(prompt="One", max_tokens=1)).encode()
    with gateway.connect() as one:
        one.sendall(post(b"", headers=b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(body)))
        assert one.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        one.sendall(body)
        assert read_answer(one)[0] == 200


def test_http_1_0_gets_a_stream_until_the_connection_ends(gateway):
    body = json.dumps(dict(prompt="One", max_tokens=3, stream=True)).encode()
    with gateway.connect() as one:
        one.sendall(post(body, headers=b"Content-Length: %d\r\n" % len(body)).replace(b"HTTP/1.1", b"HTTP/1.0"))
        head, _, rest = read_all(one).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head and rest.startswith(b"data: ") and rest.endswith(b"data: [DONE]\n\n")


def test_a_stream_that_breaks_has_no_end(tmp_path, gateways):
    """The router dies during a stream."""
    own = tmp_path / "server"
    own.mkdir()
    server = harness.Server(own, environment=harness.PATIENT, listen=f"127.0.0.1:{ports.free_ports(1)[0]}")
    try:
        gateway = gateways(server.address)
        body = json.dumps({**LONG, "stream": True, "prompt": [PROMPT] * 16}).encode()
        with gateway.connect() as one:
            one.sendall(post(body, headers=b"Content-Length: %d\r\n" % len(body)))
            assert b"200 OK" in one.recv(300)
            os.kill(server.child("tandem-router"), signal.SIGKILL)
            rest = read_all(one)
        assert b'"error"' in rest and b"[DONE]" not in rest and not rest.endswith(b"0\r\n\r\n")
        events = re.findall(rb"^data: (.*)$", rest, re.MULTILINE)
        assert json.loads(events[-1])["error"]["code"] == "service_unavailable"
        # The supervisor brings the router back, and the same gateway finds it.
        harness.wait_until(lambda: gateway.call("GET", "/health")[0] == 200, 30, "the router is back")
        assert gateway.complete(prompt=PROMPT, max_tokens=2)
    finally:
        server.stop()


def test_a_signal_lets_running_requests_end(server, gateways):
    gateway = gateways(server.address)
    answers = []
    idle = gateway.connect()
    thread = threading.Thread(target=lambda: answers.append(gateway.events(**LONG)))
    thread.start()
    harness.wait_until(lambda: server.info().load.num_running > 0, 10, "the request runs")
    assert gateway.stop() == 0
    thread.join()
    assert answers[0][-1] == "[DONE]"
    assert read_all(idle) == b""
    idle.close()


def test_a_drain_ends_in_time(servers, gateways, slow_target):
    server = servers(target=slow_target, max_slots=1, environment=harness.PATIENT)
    gateway = gateways(server.address, drain_seconds=0.3)
    body = json.dumps({**LONG, "max_tokens": 15_000, "stream": True}).encode()
    with gateway.connect() as one:
        one.sendall(post(body, headers=b"Content-Length: %d\r\n" % len(body)))
        assert b"200 OK" in one.recv(300)
        start = time.monotonic()
        assert gateway.stop() == 0
        assert time.monotonic() - start < 3
        rest = read_all(one)
    assert b"[DONE]" not in rest and b'"finish_reason":"' not in rest
    harness.wait_until(lambda: server.info().load.num_running == 0, 2, "the slot is free")


def test_tokens_guard_the_gateway(server, gateways, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"client {CLIENT_TOKEN}\nadmin {ADMIN_TOKEN}\n")
    gateway = gateways(server.address, token_file=tokens)
    error, headers = gateway.error(401, prompt="a")
    assert error["code"] == "invalid_api_key" and headers["WWW-Authenticate"].startswith("Bearer")
    gateway.error(401, prompt="a", headers={"Authorization": "Bearer wrong-token-0123456789"})
    assert gateway.call("GET", "/health")[0] == 200
    for token in (CLIENT_TOKEN, ADMIN_TOKEN):
        body = {"prompt": PROMPT, "max_tokens": 1, "user": "tenant ä"}
        assert gateway.call("POST", "/v1/completions", body, {"Authorization": f"Bearer {token}"})[0] == 200
    body = {"prompt": PROMPT, "user": "u" * 300}
    assert gateway.error(400, body=body, headers={"Authorization": f"Bearer {CLIENT_TOKEN}"})[0]["param"] == "user"


def test_a_known_user_is_a_tenant(server, gateways, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"client {CLIENT_TOKEN}\n")
    known, unknown = gateways(server.address, token_file=tokens), gateways(server.address)
    prompt = "There was once a miller whose daughter could spin straw into gold, and who told the king of it. " * 8

    def cached(gateway, user):
        answer = gateway.call("POST", "/v1/completions", {"prompt": prompt, "max_tokens": 1, "user": user},
                              {"Authorization": f"Bearer {CLIENT_TOKEN}"})[2]
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    assert cached(known, "one") == 0
    assert cached(known, "one") > 0
    assert cached(known, "two") == 0
    assert cached(unknown, "three") == 0
    assert cached(unknown, "four") > 0


def test_tokens_go_on_to_a_router_that_wants_them(gateways, tmp_path):
    tokens = tmp_path / "tokens"
    tokens.write_text(f"client {CLIENT_TOKEN}\n")
    server = harness.Server(tmp_path, token_file=tokens)
    try:
        passing, own = gateways(server.address), gateways(server.address, router_token_file=tokens)
        body = {"prompt": PROMPT, "max_tokens": 1}
        assert passing.call("POST", "/v1/completions", body, {"Authorization": f"Bearer {CLIENT_TOKEN}"})[0] == 200
        assert passing.error(401, body=body)[0]["code"] == "invalid_api_key"
        assert passing.error(401, body=body, headers={"Authorization": "Bearer sk-0123456789abcdef"})[0]["code"] == "invalid_api_key"
        assert own.call("POST", "/v1/completions", body)[0] == 200
        assert passing.call("GET", "/health")[0] == 200  # a router that wants a token is there
    finally:
        server.stop()


def test_tls_on_both_sides(gateways, tmp_path):
    authority = certificates.Authority(tmp_path / "authority")
    identity, client = authority.issue("server"), authority.issue("client")
    tls = dict(tls_certificate=identity.certificate, tls_key=identity.key)
    server = harness.Server(tmp_path, listen="localhost:0", **tls)
    try:
        gateway = gateways(server.address, listen="localhost:0", router_ca=authority.certificate,
                           tls_client_ca=authority.certificate, **tls)
        context = ssl.create_default_context(cafile=authority.certificate)

        def post_over_tls():
            connection = http.client.HTTPSConnection("localhost", gateway.port, context=context, timeout=30)
            for _ in range(2):  # keep-alive
                connection.request("POST", "/v1/completions", json.dumps(dict(prompt=PROMPT, max_tokens=3, stream=True)),
                                   {"Content-Type": "application/json"})
                text = connection.getresponse().read().decode()
                assert text.endswith("data: [DONE]\n\n"), text
            connection.close()

        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            post_over_tls()  # without a certificate of the client
        context.load_cert_chain(client.certificate, client.key)
        post_over_tls()
        with gateway.connect() as one:  # a client that does not speak TLS
            one.sendall(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"HTTP" not in read_all(one)
    finally:
        server.stop()


def test_serve_starts_a_gateway_beside_the_router(tmp_path):
    """It is killed under load: streams of gRPC go on, and the next one listens at the same address."""
    command = [harness.BINARY_DIR / "bin" / "tandem", "serve", "--listen", "127.0.0.1:0", "--admin", "none", "--http", "127.0.0.1:0"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True,
                                   env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), **harness.PATIENT})
    try:
        ready, line = process.stdout.readline(), process.stdout.readline()
        router = re.fullmatch(r"ready: (\S+)\n", ready).group(1)
        url = "http://" + re.fullmatch(r"http: (\S+)\n", line).group(1)

        def complete():
            body = json.dumps(dict(prompt=PROMPT, max_tokens=3)).encode()
            request = urllib.request.Request(url + "/v1/completions", body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=30) as answer:
                    return json.loads(answer.read())["usage"]["completion_tokens"] == 3
            except OSError:
                return False

        assert complete()
        with grpc.insecure_channel(router) as channel:
            stub = generate_pb2_grpc.GenerationStub(channel)
            stream = stub.Generate(harness.request(PROMPT, temperature=0, max_tokens=900, ignore_eos=True), timeout=60)
            next(stream)
            os.kill(next(pid for pid, name in harness.descendants(process.pid).items() if name == "tandem-gateway"), signal.SIGKILL)
            assert harness.Output.read(stream).completion.usage.completion_tokens <= 900
        harness.wait_until(complete, 10, "the gateway is back")
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, (tmp_path / "log").read_text()


@pytest.fixture(scope="module")
def client(gateway):
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0) as one:
        yield one


def test_openais_client_reads_whole_answers_and_streams(server, client):
    model = client.models.list().data[0].id
    assert client.models.retrieve(model).id == model == server.info().model
    want = server.generate(PROMPT, temperature=0, max_tokens=30)
    options = dict(model=model, prompt=PROMPT, temperature=0, max_tokens=30, logprobs=2, extra_body={"ignore_eos": False})
    whole = client.completions.create(**options)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == (want.text, "length")
    assert whole._request_id == whole.id and whole.model_extra["speculation"]["num_accepted_tokens"] > 0
    assert whole.usage.completion_tokens == 30 and whole.usage.completion_tokens_details.accepted_prediction_tokens == 0
    assert "".join(whole.choices[0].logprobs.tokens) == want.text
    chunks = list(client.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == want.text
    assert chunks[-1].usage == whole.usage.model_copy(update={"prompt_tokens_details": chunks[-1].usage.prompt_tokens_details})
    prompts = client.completions.create(model=model, prompt=["One", "Two"], max_tokens=3)
    assert [choice.index for choice in prompts.choices] == [0, 1]


def test_openais_client_raises_the_errors_of_its_api(client, gateways, tmp_path):
    with pytest.raises(openai.NotFoundError) as missing:
        client.completions.create(model="other", prompt="a")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(model="", prompt="a", best_of=3)
    assert refused.value.param == "best_of"
    gone = gateways(f"unix:{tmp_path}/router.sock")
    with openai.OpenAI(base_url=gone.url + "/v1", api_key="none", max_retries=0) as one, pytest.raises(openai.InternalServerError) as away:
        one.completions.create(model="m", prompt="a")
    assert away.value.status_code == 503


def test_openais_client_frees_the_slot_of_a_stream_that_it_leaves(servers, gateways, slow_target):
    server = servers(target=slow_target, max_slots=1, environment=harness.PATIENT)
    with openai.OpenAI(base_url=gateways(server.address).url + "/v1", api_key="none", max_retries=0) as one:
        stream = one.completions.create(model="", prompt=PROMPT, max_tokens=15_000, temperature=0, stream=True,
                                        extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        harness.wait_until(lambda: server.info().load.num_running == 0, 2, "the slot is free")


def test_strangers_need_a_reason(tmp_path):
    done = subprocess.run([harness.BINARY_DIR / "bin" / "tandem-gateway", "--listen", "0.0.0.0:0", "--report-refusal"], capture_output=True,
                          text=True, timeout=20)
    assert done.returncode == 1 and done.stdout.startswith("refused: --listen 0.0.0.0:0 can be reached from other machines")


def test_the_log_has_a_line_for_each_request(server, gateways):
    gateway = gateways(server.address, log_format="json", admin="127.0.0.1:0")
    trace = "0af7651916cd43dd8448eb211c80319c"
    answer = gateway.call("POST", "/v1/completions", {"prompt": "secret prompt", "max_tokens": 3},
                          {"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
    gateway.error(404, "/nothing", "GET", body=b"")
    harness.wait_until(lambda: gateway.log().count("http request") == 2, 5, "two lines")
    lines = [json.loads(line) for line in gateway.log().splitlines()]
    good, bad = [line for line in lines if line["message"] == "http request"]
    assert (good["method"], good["path"], good["http_status"], good["tokens"]) == ("POST", "/v1/completions", 200, 3)
    assert good["request_id"] == answer[2]["id"] == answer[1]["x-request-id"] and good["trace_id"] == trace
    assert (bad["http_status"], "request_id" in bad) == (404, False)
    assert "secret" not in gateway.log()
    harness.wait_until(lambda: good["request_id"] in server.log(), 5, "the router logs the same id")
    assert trace in server.log()
    admin = re.search(r"metrics: http://(\S+)/metrics", gateway.log()).group(1)
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=10) as page:
        text = page.read().decode()
    assert re.search(r'tandem_http_requests_total\{path="/v1/completions",status="200"\} 1\b', text), text
    assert 'path="other",status="404"' in text and re.search(r"^tandem_http_connections \d", text, re.MULTILINE)
