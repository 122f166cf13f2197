"""Tests access from outside: TLS, tokens, sockets, the contents of errors, and the way of a request's trace context."""

import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import resource
import socket
import ssl
import stat
import subprocess
import tempfile
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

import cluster
import harness
from certificates import Authority
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb
from tandem.v1 import generate_pb2_grpc
from tandem.v1 import draft_models_pb2, worker_pb2

CLIENT = "client-token-3kq0v9x1m5c7"
ADMIN = "admin-token-8s2h4j6d0f1w"
WRONG = "client-token-3kq0v9x1m5c8"
TANDEM = harness.BINARY_DIR / "bin" / "tandem"
OWN = [("grpc.use_local_subchannel_pool", 1)]


def write_tokens(path, **roles):
    new = path.with_suffix(".new")
    new.write_text("# for tests\n" + "".join(f"{role} {token}\n" for role, token in roles.items()))
    new.chmod(0o600)
    new.rename(path)
    return path


def bearer(token):
    return [("authorization", f"Bearer {token}")] if token else []


def info(channel, token=None, **options):
    stub = generate_pb2_grpc.GenerationStub(channel)
    return stub.GetServerInfo(pb.GetServerInfoRequest(), metadata=bearer(token), timeout=30, **options)


def refused(call):
    with pytest.raises(grpc.RpcError) as error:
        call()
    return harness.notice(error.value)


def wait_for_log(server, pattern):
    """Waits until the log has the pattern. The supervisor writes it some time after a process has said it."""
    harness.wait_until(lambda: re.search(pattern, server.log()), 30, f"the log has {pattern}")


def fetch(address, path, *, method="GET", token=None, authorization=None, context=None):
    """Returns (status, headers, body)."""
    kind = http.client.HTTPConnection if context is None else http.client.HTTPSConnection
    with contextlib.closing(kind(address, timeout=30, **({} if context is None else {"context": context}))) as connection:
        headers = {"Authorization": authorization or f"Bearer {token}"} if authorization or token else {}
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return response.status, response.headers, response.read().decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates") / "ours", "ours")


@pytest.fixture(scope="module")
def other_authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates") / "theirs", "theirs")


@pytest.fixture
def serve(tmp_path):
    """Starts servers with files of this test: serve(**options) -> harness.Server."""
    running = []

    def start(**options):
        folder = tmp_path / f"server{len(running)}"
        folder.mkdir()
        running.append(harness.Server(folder, **options))
        return running[-1]

    yield start
    for server in running:
        if server.process.poll() is None:
            server.stop()


# ---------------------------------------------------------------- tokens and what is denied


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    """A server with tokens, in plaintext. All its processes log everything they can."""
    folder = tmp_path_factory.mktemp("guarded")
    tokens = write_tokens(folder / "tokens", client=CLIENT, admin=ADMIN)
    debug = {f"TANDEM_{process}LOG_LEVEL": "debug" for process in ("", "DRAFT_", "VERIFIER_")}
    server = harness.Server(folder, token_file=tokens, admin="127.0.0.1:0", environment=debug)
    yield server
    server.stop()


def all_methods():
    """Returns the methods of every service of all processes, and some methods that do not exist."""
    files = (pb.DESCRIPTOR, draft_models_pb2.DESCRIPTOR, worker_pb2.DESCRIPTOR, health_pb2.DESCRIPTOR, reflection_pb2.DESCRIPTOR)
    methods = [f"/{service.full_name}/{method.name}" for file in files for service in file.services_by_name.values()
               for method in service.methods]
    assert len(methods) >= 4 + 5 + 3 + 2 + 1
    return [*methods, REFLECTION_V1, "/tandem.v1.Generation/Nothing", "/tandem.v1.Nothing/Generate", "/nothing", "/"]


def call_raw(channel, method, metadata):
    """Returns the status of a call with an empty message."""
    call = channel.unary_stream(method)(b"", metadata=metadata, timeout=30)
    try:
        # A message with contents is an answer. gRPC's own health service ends a refused call with an empty message.
        if any(call):
            call.cancel()
        return grpc.StatusCode.OK, ""
    except grpc.RpcError as error:
        harness.notice(error)
        return error.code(), error.details()


# gRPC's own methods. Their streams can be canceled, but not answered with words.
REFLECTION_V1 = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"  # the Python package has v1alpha alone
CANCELLED = {"/grpc.health.v1.Health/Watch", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", REFLECTION_V1}


def test_no_method_is_served_without_a_token_of_this_server(guarded):
    bad = [[], bearer(WRONG), bearer(CLIENT[:-1]), [("authorization", CLIENT)], [("authorization", "Bearer ")],
           [("authorization", "Basic " + base64.b64encode(f"x:{CLIENT}".encode()).decode())], bearer(CLIENT) + bearer(WRONG),
           [("token", CLIENT)], [("authorization", f"Bearer {'x' * 4000}")]]
    with guarded.new_channel() as channel:
        for method in all_methods():
            for metadata in bad:
                code, details = call_raw(channel, method, metadata)
                if method in CANCELLED:
                    assert code == grpc.StatusCode.CANCELLED, (method, metadata, code, details)
                else:
                    assert code == grpc.StatusCode.UNAUTHENTICATED, (method, metadata, code, details)
                    assert "Bearer TOKEN" in details


def http2_request(path, *headers):
    """Returns the bytes of a connection that sends one gRPC request with any headers."""
    def literal(name, value):
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

    def frame(kind, flags, stream, payload=b""):
        return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload

    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"x"), (b"te", b"trailers"),
              (b"content-type", b"application/grpc"), *headers]
    return (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(1, 4, 1, b"".join(literal(*field) for field in fields))
            + frame(0, 1, 1, b"\0\0\0\0\0"))


def test_no_header_of_a_stranger_ends_the_server(guarded):
    """grpclb_client_stats aborted gRPC 1.51 if all metadata was handed over for authentication."""
    pid = guarded.child("tandem-router")
    assert pid
    host, port = guarded.address.rsplit(":", 1)
    strange = [(b"grpclb_client_stats", b"x"), (b"grpc-lb-costs", b"1"), (b"lb-token", b"x"), (b"grpc-timeout", b"x"),
               (b"endpoint-load-metrics-bin", b"x"), (b"grpc-server-stats-bin", b"x"), (b"grpc-trace-bin", b"x"), (b"host", b"x"),
               (b"grpc-status", b"x"), (b"grpc-message", b"x"), (b"content-encoding", b"x"), (b"grpc-encoding", b"x"),
               (b"authorization", b"Bearer \xff\xfe"), (b"x-envoy-peer-metadata", b"x"), (b":status", b"x")]
    for path in (b"/tandem.v1.Generation/Generate", b"/tandem.v1.Generation/GetServerInfo", b"/grpc.health.v1.Health/Check", b"/x"):
        for header in strange:
            with socket.create_connection((host, int(port)), timeout=30) as connection:
                connection.sendall(http2_request(path, header))
                assert connection.recv(1)
        with guarded.new_channel() as channel:
            assert info(channel, CLIENT).model == "tales", path
    assert guarded.child("tandem-router") == pid


def test_open_connections_shut_nobody_out(serve):
    """There are more connections than the process may have descriptors. Some are turned away, and those that end make room."""
    server = serve()
    pid = server.child("tandem-router")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, 256))
    host, port = server.address.rsplit(":", 1)
    with contextlib.ExitStack() as crowd:
        for _ in range(400):
            crowd.enter_context(socket.create_connection((host, int(port)), timeout=30))
        harness.wait_until(lambda: "turned away" in server.log(), 30, "the log says that there are too many")

    def answers():
        with server.new_channel() as channel, contextlib.suppress(grpc.RpcError):
            return info(channel).model == "tales"

    harness.wait_until(answers, 60, "it serves again")
    assert server.child("tandem-router") == pid


def test_the_list_of_methods_has_every_served_method(guarded):
    with guarded.new_channel() as channel:
        listing = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")]), metadata=bearer(CLIENT), timeout=30)
        services = {service.name for service in next(listing).list_services_response.service}
    assert services == {"tandem.v1.Generation", "tandem.v1.DraftModels", "grpc.health.v1.Health",
                        "grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection"}
    assert services <= {method.split("/")[1] for method in all_methods()}


def test_both_roles_may_call_only_existing_methods(guarded):
    with guarded.new_channel() as channel:
        for token in (CLIENT, ADMIN):
            assert info(channel, token).model == "tales"
            stub = generate_pb2_grpc.GenerationStub(channel)
            stream = stub.Generate(harness.request(PROMPTS[0], max_tokens=3, ignore_eos=True), metadata=bearer(token), timeout=30)
            assert len(harness.Output.read(stream).token_ids) == 3
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), metadata=bearer(token), timeout=30)
            assert health.status == health_pb2.HealthCheckResponse.SERVING
            for method in ("/tandem.v1.Generation/Nothing", "/tandem.v1.VerifierWorker/Session", "/nothing"):
                assert call_raw(channel, method, bearer(token))[0] == grpc.StatusCode.UNIMPLEMENTED, method


def basic(token):
    return "Basic " + base64.b64encode(f"somebody:{token}".encode()).decode()


def test_every_page_but_the_probes_needs_an_admin(guarded):
    addresses = harness.admin_addresses(guarded)
    assert set(addresses) == {"router", "verifier", "draft"}
    for process, address in addresses.items():
        listed = fetch(address, "/nothing", token=ADMIN)
        assert listed[0] == 404
        routes = re.search(r"there are: (.*)", listed[2]).group(1).split(", ")
        assert {"/metrics", "/healthz", "/readyz"} <= set(routes)
        assert process != "router" or {"/", "/live.json", "/live.js", "/live.css"} <= set(routes)
        for path in [*routes, "/nothing", "/metrics/", "/healthz/", "/../healthz", "//healthz", "/HEALTHZ"]:
            is_probe = path in ("/healthz", "/readyz")
            is_there = path in routes
            for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
                def status(**who):
                    return fetch(address, path, method=method, **who)[0]
                reads = method in ("GET", "HEAD")
                where = (process, method, path)
                for who in ({}, {"token": WRONG}, {"authorization": basic(WRONG)}, {"authorization": ADMIN},
                            {"authorization": "Bearer"}, {"authorization": "Basic !"}):
                    assert status(**who) == (200 if is_probe and reads else 401), (where, who)
                assert status(token=CLIENT) == (200 if is_probe and reads else 403), where
                for who in ({"token": ADMIN}, {"authorization": basic(ADMIN)}):
                    assert status(**who) == (404 if not is_there else 200 if reads else 405), (where, who)
        _, headers, body = fetch(address, "/metrics")
        assert headers.get_all("WWW-Authenticate")[0].startswith("Basic ")  # a browser asks for a password with this header
        assert "tandem_" not in body


def test_no_log_contains_a_token(guarded):
    with guarded.new_channel() as channel:
        info(channel, CLIENT)
        refused(lambda: info(channel, WRONG))
    wait_for_log(guarded, "calls without a valid token")
    log = guarded.log()
    for token in (CLIENT, ADMIN, WRONG):
        assert token[12:] not in log


def test_tokens_are_read_again(serve, tmp_path):
    tokens = write_tokens(tmp_path / "tokens", client=CLIENT)
    server = serve(token_file=tokens, admin="127.0.0.1:0")
    address = harness.admin_addresses(server)["router"]
    with server.new_channel() as channel:
        assert info(channel, CLIENT).model == "tales"
        assert refused(lambda: info(channel, ADMIN)).code() == grpc.StatusCode.UNAUTHENTICATED
        assert fetch(address, "/metrics", token=ADMIN)[0] == 401
        write_tokens(tokens, admin=ADMIN)
        time.sleep(1.1)
        assert info(channel, ADMIN).model == "tales"
        assert refused(lambda: info(channel, CLIENT)).code() == grpc.StatusCode.UNAUTHENTICATED
        assert fetch(address, "/metrics", token=ADMIN)[0] == 200
        tokens.write_text("admin\n")  # an invalid file locks nobody out, and the log reports it
        time.sleep(1.1)
        assert info(channel, ADMIN).model == "tales"
        wait_for_log(server, "line 1: want `client TOKEN` or `admin TOKEN`")


# ---------------------------------------------------------------- TLS


def tls_channel(address, authority, identity=None, name=None):
    """`name` is the name in the server's certificate; None means its address."""
    certificate, key = identity.read() if identity is not None else (None, None)
    credentials = grpc.ssl_channel_credentials(authority.certificate.read_bytes(), key, certificate)
    return grpc.secure_channel(address, credentials, [*OWN, *([("grpc.ssl_target_name_override", name)] if name else [])])


def tandem(*arguments):
    return subprocess.run([TANDEM, *map(str, arguments)], capture_output=True, text=True, timeout=120)


def test_tls_and_tokens_with_the_command_line(serve, tmp_path, authority, other_authority):
    identity = authority.issue("cli")
    tokens = write_tokens(tmp_path / "tokens", admin=ADMIN, client=CLIENT)
    server = serve(tls_certificate=identity.certificate, tls_key=identity.key, token_file=tokens, admin="127.0.0.1:0")
    wait_for_log(server, re.escape(f"--tls-ca CA --token-file {tokens}"))
    good = ["--tls-ca", authority.certificate, "--token-file", tokens]
    said = tandem("generate", "--connect", server.address, *good, "--temperature", 0, "-n", 8, "Once upon a time")
    assert said.returncode == 0 and said.stdout.strip(), said.stderr
    assert tandem("info", "--connect", server.address, *good).returncode == 0
    load = tandem("bench", "serve", "--connect", server.address, *good, "--clients", 2, "--requests", 1, "--pairs", 1,
                  "--drafting", "off", "--output-lengths", "fixed:4")
    assert load.returncode == 0, load.stderr
    address = harness.admin_addresses(server)["router"]
    top = tandem("top", "--once", "--admin", address, *good)
    assert (top.returncode, top.stderr) == (0, "") and "verifier: attached, model tales" in top.stdout

    for arguments, says in [((), "nobody answers"), (("--tls-ca", other_authority.certificate), "nobody answers"),
                            (("--tls-ca", authority.certificate), "UNAUTHENTICATED"),
                            (("--tls-ca", tmp_path / "none"), "--tls-ca"), (("--token-file", tmp_path / "none"), "--token-file"),
                            (("--tls-certificate", identity.certificate), "needs --tls-ca")]:
        done = tandem("info", "--connect", server.address, *arguments)
        assert done.returncode != 0 and says in done.stderr, (arguments, done.stderr)
    for arguments, says in [((), "TLS"), (("--tls-ca", other_authority.certificate), "certificate verify failed"),
                            (("--tls-ca", authority.certificate), "admin's token")]:
        done = tandem("top", "--once", "--admin", address, *arguments)
        assert done.returncode != 0 and says in done.stderr, (arguments, done.stderr)


def test_the_admin_port_speaks_tls_and_asks_no_certificate_of_probes(serve, authority, other_authority):
    identity = authority.issue("admin")
    server = serve(tls_certificate=identity.certificate, tls_key=identity.key, tls_client_ca=authority.certificate,
                   admin="127.0.0.1:0")
    addresses = harness.admin_addresses(server)
    wait_for_log(server, f"live page: https://{addresses['router']}/")
    trusting = ssl.create_default_context(cafile=authority.certificate)
    for address in addresses.values():
        assert fetch(address, "/healthz", context=trusting)[0] == 200
        assert "tandem_" in fetch(address, "/metrics", context=trusting)[2]
        with pytest.raises(ssl.SSLCertVerificationError):
            fetch(address, "/healthz", context=ssl.create_default_context(cafile=other_authority.certificate))
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            fetch(address, "/healthz")
        old = ssl.create_default_context(cafile=authority.certificate)
        with pytest.warns(DeprecationWarning):
            old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        old.set_ciphers("DEFAULT:@SECLEVEL=0")  # this end would use it
        with pytest.raises(ssl.SSLError, match="alert protocol version"):
            fetch(address, "/healthz", context=old)


def test_mutual_tls(serve, authority, other_authority):
    identity = authority.issue("mutual")
    server = serve(tls_certificate=identity.certificate, tls_key=identity.key, tls_client_ca=authority.certificate)
    with tls_channel(server.address, authority, authority.issue("a-client")) as channel:
        assert info(channel).model == "tales"
    for stranger in (None, other_authority.issue("a-client"), authority.issue_expired("late-client")):
        with tls_channel(server.address, authority, stranger) as channel:
            assert refused(lambda: info(channel)).code() == grpc.StatusCode.UNAVAILABLE
    client = authority.issue("cli-client")
    done = tandem("info", "--connect", server.address, "--tls-ca", authority.certificate, "--tls-certificate", client.certificate,
                  "--tls-key", client.key)
    assert done.returncode == 0, done.stderr


def test_an_expired_certificate_causes_a_warning_and_is_refused(serve, authority):
    identity = authority.issue_expired("expired")
    server = serve(tls_certificate=identity.certificate, tls_key=identity.key)
    wait_for_log(server, r"warning.*expired on 2020-02-01")
    with tls_channel(server.address, authority) as channel:
        assert refused(lambda: info(channel)).code() == grpc.StatusCode.UNAVAILABLE
    identity.replace_by(authority.issue("renewed"))
    with tls_channel(server.address, authority) as channel:
        assert info(channel).model == "tales"


def test_certificates_are_replaced_under_running_streams(serve, authority, other_authority, models):
    target = models.random(vocabulary_size=4096, hidden_size=64, layers=2, dtype="bf16", max_positions=16384, seed=3,
                           tokenizer_from=harness.TALES_TARGET)
    identity, others = authority.issue("replaced"), other_authority.issue("replaced")
    server = serve(target=target, tls_certificate=identity.certificate, tls_key=identity.key, admin="127.0.0.1:0",
                   environment=harness.PATIENT)
    address = harness.admin_addresses(server, ["router", "verifier"])["router"]
    channel = tls_channel(server.address, authority)
    endless = dict(temperature=0, max_tokens=15_000, ignore_eos=True)
    stream = cluster.Stream(generate_pb2_grpc.GenerationStub(channel), PROMPTS[0], 120, endless)
    harness.wait_until(lambda: stream.num_tokens > 0, 30, "it streams")
    identity.replace_by(others)
    with tls_channel(server.address, other_authority) as new, tls_channel(server.address, authority) as old:
        assert info(new).load.num_running == 1
        assert refused(lambda: info(old)).code() == grpc.StatusCode.UNAVAILABLE
    assert fetch(address, "/healthz", context=ssl.create_default_context(cafile=other_authority.certificate))[0] == 200
    assert info(channel).load.num_running == 1, "the stream went on over the connection that was there"
    mark = stream.num_tokens
    harness.wait_until(lambda: stream.num_tokens >= mark + 1000 or stream.done, 60, "the stream goes on")
    assert len(stream.cancel()) >= mark + 1000
    channel.close()
    # After half of a new pair, and after an invalid file, the old pair stays in use.
    identity.certificate.write_bytes(authority.issue("half").certificate.read_bytes())
    with tls_channel(server.address, other_authority) as new:
        assert info(new).version
    identity.key.write_text("nonsense")
    with tls_channel(server.address, other_authority) as new:
        assert info(new).version
    wait_for_log(server, "TLS keeps the earlier files")


# ---------------------------------------------------------------- workers


@pytest.fixture
def workers(request, tmp_path, authority):
    """Starts both workers over TCP with mutual TLS, and with the options of the test's parameters."""
    identity = authority.issue("worker", alternatives="DNS:workers.example")
    running = []

    def start(name, *arguments):
        process = subprocess.Popen([harness.BINARY_DIR / "bin" / name, *map(str, arguments)], stdout=subprocess.PIPE,
                                   stderr=open(tmp_path / f"{name}.log", "ab"), text=True,
                                   env={**os.environ, "TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)})
        running.append(process)
        return process

    def wait_ready(process):
        return process.stdout.readline().removeprefix("ready: ").strip()

    tls = ["--listen", "127.0.0.1:0", "--tls-certificate", identity.certificate, "--tls-key", identity.key, "--tls-client-ca",
           authority.certificate, *getattr(request, "param", ())]
    verifier = wait_ready(start("tandem-verifier", "--model", harness.TALES_TARGET, *tls))
    drafter = wait_ready(start("tandem-draft", "--model", harness.TALES_DRAFT, *tls))
    yield verifier, drafter, lambda *arguments: start("tandem-router", "--target", harness.TALES_TARGET, "--listen", "127.0.0.1:0",
                                                       "--verifier", verifier, "--drafter", drafter, *arguments), wait_ready
    for process in reversed(running):
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_router_and_its_workers_over_mutual_tls(workers, authority, other_authority, tmp_path):
    verifier, drafter, start_router, wait_ready = workers
    identity = authority.issue("router")
    shows = ["--worker-certificate", identity.certificate, "--worker-key", identity.key]
    address = wait_ready(start_router("--worker-ca", authority.certificate, *shows, "--worker-name", "workers.example"))
    with grpc.insecure_channel(address, OWN) as channel:
        stub = generate_pb2_grpc.GenerationStub(channel)
        harness.wait_until(lambda: info(channel).drafter_attached, 30, "the drafter is attached")
        output = harness.Output.read(stub.Generate(harness.request(PROMPTS[0], temperature=0, max_tokens=40, draft_length=4,
                                                                   ignore_eos=True), timeout=30))
        assert output.completion.speculation.num_accepted_tokens > 0
    # The cases are: no certificate, a certificate of another authority, workers with the wrong name, plaintext.
    stranger = other_authority.issue("router")
    for arguments in (["--worker-ca", authority.certificate, "--worker-name", "workers.example"],
                      ["--worker-ca", authority.certificate, "--worker-certificate", stranger.certificate, "--worker-key", stranger.key,
                       "--worker-name", "workers.example"],
                      ["--worker-ca", other_authority.certificate, *shows, "--worker-name", "workers.example"],
                      ["--worker-ca", authority.certificate, *shows], []):
        log = tmp_path / "tandem-router.log"
        seen = len(log.read_text())
        router = start_router(*arguments)
        harness.wait_until(lambda: "verifier: cannot attach" in log.read_text()[seen:], 30, f"{arguments} cannot attach")
        router.kill()


@pytest.mark.parametrize("workers", [("--client-name", "the-routers")], indirect=True)
def test_no_method_of_a_worker_is_served_without_a_routers_certificate(workers, authority, other_authority):
    named = {"alternatives": "DNS:the-routers"}
    router = authority.issue("named-router", **named)
    misnamed = authority.issue("misnamed-router", alternatives="DNS:the-router,DNS:routers,DNS:localhost")
    foreign = other_authority.issue("foreign-router", **named)
    expired = authority.issue("expired-router", **named, start="20200101000000Z", end="20200201000000Z")
    for address, service in zip(workers, ("VerifierWorker", "DraftWorker")):
        streams = [f"/tandem.v1.{service}/Session", "/tandem.v1.WorkerHealth/Watch", "/grpc.health.v1.Health/Watch"]
        served = [*streams, "/grpc.health.v1.Health/Check"]
        assert set(served) <= set(all_methods())

        def connect(identity, address=address):
            return tls_channel(address, authority, identity, name="workers.example")

        strangers = {"plaintext": grpc.insecure_channel(address, OWN), "no certificate": connect(None), "foreign": connect(foreign),
                     "expired": connect(expired)}
        for who, channel in strangers.items():
            with channel:
                for method in all_methods():
                    code, details = call_raw(channel, method, [])
                    assert code == grpc.StatusCode.UNAVAILABLE, (service, who, method, code, details)
        with connect(misnamed) as channel:
            for method in all_methods():
                code, details = call_raw(channel, method, [])
                # A stream can be canceled, but not answered with words.
                refusals = {grpc.StatusCode.PERMISSION_DENIED, *([grpc.StatusCode.CANCELLED] if method in streams else [])}
                assert code in refusals, (service, "misnamed", method, code, details)
        with connect(router) as channel:
            for method in served:
                code, details = call_raw(channel, method, [])
                assert code == grpc.StatusCode.OK, (service, "router", method, code, details)


CONNECT = """
import socket, struct, sys
peer = socket.socket(socket.AF_UNIX)
peer.settimeout(30)
try:
    peer.connect(sys.argv[1])
    peer.sendall(struct.pack("=Q", 1) if "ring" in sys.argv[1] else b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n")
    print("answered", len(peer.recv(64)))
except OSError as error:
    print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_reaches_no_socket(serve):
    with tempfile.TemporaryDirectory() as shared:
        shared = pathlib.Path(shared)
        shared.chmod(0o755)  # the folders of pytest do not have this mode
        server = serve(environment={"XDG_RUNTIME_DIR": str(shared)})
        (folder,) = [path for path in shared.iterdir() if path.name.startswith("tandem-run-")]
        sockets = sorted(path for path in folder.iterdir() if stat.S_ISSOCK(path.stat().st_mode))
        assert [re.sub(r"\d+", "N", path.name) for path in sockets] == ["draft.sock", "ring-N.sock", "verifier.sock"]
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert {stat.S_IMODE(path.stat().st_mode) for path in sockets} == {0o600}

        def connect(path, *becoming):
            # An interpreter that everybody may run.
            done = subprocess.run([*becoming, "/usr/bin/python3", "-c", CONNECT, path], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        for path in sockets:
            assert connect(path).startswith("answered"), f"its own user reaches {path.name}"
            assert connect(path, *nobody) == "PermissionError", path.name
        # Tests each protection alone: first the socket's mode, and then the check of the connecting process's user.
        folder.chmod(0o755)
        for path in sockets:
            assert connect(path, *nobody) == "PermissionError", path.name
        for path in sockets:
            path.chmod(0o666)
        for path in sockets:
            assert connect(path) not in ("answered 0", "PermissionError"), f"its own user reaches {path.name}"
            assert connect(path, *nobody) in ("answered 0", "ConnectionResetError", "BrokenPipeError"), path.name
        for process in ("verifier", "draft"):
            wait_for_log(server, rf"(?m)^{process}: .* turned away: user 65534 ")
        assert server.generate(PROMPTS[0], max_tokens=4, ignore_eos=True).token_ids, "and nobody else is disturbed"
        folder.chmod(0o700)
        assert server.stop() == 0


# ---------------------------------------------------------------- starts that are refused


def fails(name, *arguments):
    done = subprocess.run([harness.BINARY_DIR / "bin" / name, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                          env={key: value for key, value in os.environ.items() if not key.startswith("TANDEM_")})
    assert done.returncode != 0
    return done.stderr


def test_public_addresses_need_tls_tokens_or_insecure(tmp_path, authority):
    identity = authority.issue("public")
    tokens = write_tokens(tmp_path / "tokens", client=CLIENT)
    tls = ["--tls-certificate", identity.certificate, "--tls-key", identity.key]
    mutual = [*tls, "--tls-client-ca", authority.certificate]
    with_tokens = ["--token-file", tokens]
    reaches = "can be reached from other machines"
    # An allowed start fails at the next mistake, so that nothing listens.
    for listen in ("0.0.0.0:0", "[::]:0", "192.0.2.1:50051", "example.org:50051"):
        for name, more, mistake in (("tandem-router", ["--target", harness.TALES_TARGET, "--verifier", "nowhere"], "nowhere"),
                                    ("tandem-verifier", ["--model", tmp_path / "none"], "none"),
                                    ("tandem-draft", ["--model", tmp_path / "none"], "none")):
            is_router = name == "tandem-router"
            for allowing, allowed in (([], False), (tls, is_router), (with_tokens, is_router), (mutual, True), (["--insecure"], True)):
                says = fails(name, "--listen", listen, *allowing, *more)
                assert (reaches not in says) == allowed, (name, allowing, says)
                assert (mistake in says.replace(str(tmp_path), "")) == allowed, (name, allowing, says)
    public_admin = [("tandem-router", "--target", harness.TALES_TARGET, "--verifier", "nowhere", "--admin", "0.0.0.0:0"),
                    *((name, "--model", tmp_path / "none", "--listen", f"unix:{tmp_path}/worker.sock", "--admin", "0.0.0.0:0")
                      for name in ("tandem-verifier", "tandem-draft"))]
    for allowing in ([], tls, mutual):
        for command in (*public_admin, ("tandem", "serve", "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0")):
            says = fails(*command, *allowing)
            assert reaches in says and "--admin" in says and "--token-file" in says, (command, says)
    for allowing in (with_tokens, ["--insecure"]):
        for command in public_admin:
            assert reaches not in fails(*command, *allowing), (command, allowing)
    assert reaches in fails("tandem", "serve", "--listen", "0.0.0.0:0", "--admin", "none")


def test_files_that_do_not_fit_are_named_at_the_start(tmp_path, authority):
    identity, other = authority.issue("fits"), authority.issue("fits-not")
    short = tmp_path / "short"
    short.write_text("client abc\n")
    short.chmod(0o600)
    everybodys = write_tokens(tmp_path / "everybodys", client=CLIENT)
    everybodys.chmod(0o666)
    for arguments, says in ((["--tls-certificate", identity.certificate], "--tls-certificate and --tls-key belong together"),
                            (["--tls-certificate", identity.certificate, "--tls-key", other.key], "not the certificate's key"),
                            (["--tls-certificate", tmp_path / "gone", "--tls-key", identity.key], "No such file"),
                            (["--tls-certificate", identity.key, "--tls-key", identity.key], "no certificate in PEM"),
                            (["--tls-client-ca", authority.certificate], "--tls-client-ca"),
                            (["--token-file", tmp_path / "gone"], "No such file"),
                            (["--token-file", short], "line 1: the token has 3 characters, want 16 to 512"),
                            (["--token-file", everybodys], "every user of this machine can write it")):
        for name, more in (("tandem", ["serve", "--listen", "127.0.0.1:0", "--admin", "none"]),
                           ("tandem-router", ["--target", harness.TALES_TARGET, "--verifier", "unix:/x", "--listen", "127.0.0.1:0"]),
                           ("tandem-verifier", ["--model", harness.TALES_TARGET, "--listen", "127.0.0.1:0"])):
            assert says in fails(name, *more, *arguments), (name, arguments)


# ---------------------------------------------------------------- what errors tell


def test_the_search_for_telltale_texts_works(guarded):
    for text in ("cannot open /home/x/model.safetensors", "at 0x7ffe1234abcd", "memfd:ring", "unix:/run/x", "in /tmp/a/b.", "(/a/b)",
                 "draft.sock is gone", "ring-123 failed"):
        assert harness.TELLTALE.search(text), text
    for text in ("want 0 or more", "gRPC's 1/2", "text/plain", "http://127.0.0.1/metrics", "allowed: [0, 1]"):
        assert not harness.TELLTALE.search(text), text
    # Every system test checks the server's texts. It does not check gRPC's own texts, which have addresses.
    with guarded.new_channel() as channel:
        assert harness.is_from_server(refused(lambda: info(channel, WRONG)))
    with grpc.insecure_channel("unix:/nowhere/at.sock", OWN) as channel:
        assert not harness.is_from_server(refused(lambda: info(channel)))
    canceled = guarded.stub.Generate(harness.request(PROMPTS[0]), metadata=bearer(CLIENT), timeout=30)
    canceled.cancel()
    assert not harness.is_from_server(refused(lambda: list(canceled)))


def bad_requests():
    for field, values in {"temperature": (-1, float("nan")), "top_p": (0, 2), "min_p": (-1, 2), "top_k": (-2,), "max_tokens": (0, -5),
                          "min_tokens": (-1, 10**6), "repetition_penalty": (0, -1), "presence_penalty": (9,), "frequency_penalty": (-9,),
                          "logprobs": (-1, 99), "stop": ([""], ["x"] * 99, ["x" * 5000]), "stop_token_ids": ([-1], [10**6]),
                          "logit_bias": ({-1: 1.0}, {1: 1e9}), "draft_length": (-1, 999), "lenience": (0, 2), "drafter": ("nobody",),
                          "model": ("../../etc/passwd", "nobody"), "request_id": ("x" * 5000,)}.items():
        for value in values:
            yield harness.request(PROMPTS[0], **{field: value})
    for prompt in (None, "", [], [-1], [10**8], [1] * 5000, "x" * 300000):
        yield harness.request(prompt)
    yield harness.request(PROMPTS[0], lenience=0.5, reproducible=True)


def gather_errors(channel):
    stub = generate_pb2_grpc.GenerationStub(channel)
    calls = [lambda request=request: harness.Output.read(stub.Generate(request, timeout=30)) for request in bad_requests()]
    too_long = [("tandem-tenant", "x" * 300)]
    calls.append(lambda: harness.Output.read(stub.Generate(harness.request(PROMPTS[0]), metadata=too_long, timeout=30)))
    for ids in ([-1], [10**8], [2**31 - 1]):
        calls.append(lambda ids=ids: stub.Detokenize(pb.DetokenizeRequest(ids=ids), timeout=30))
    calls.append(lambda: stub.Tokenize(pb.TokenizeRequest(text="x" * (5 << 20)), timeout=30))
    calls.append(lambda: channel.unary_unary("/tandem.v1.Generation/Generate")(b"\xff\xff\xff", timeout=30))
    calls.append(lambda: channel.unary_unary("/tandem.v1.Generation/Tokenize")(b"\x0a\x02\xff\xfe", timeout=30))
    calls.append(lambda: channel.unary_unary("/nothing/at/all")(b"", timeout=30))
    failed = 0
    for call in calls:
        try:
            call()
        except grpc.RpcError as error:
            failed += 1
            yield from harness.texts_of(error)
    assert failed > len(calls) * 0.8, "most of them are refused"


def test_errors_tell_no_path_no_pointer_and_no_region(tmp_path):
    pair = cluster.Cluster(tmp_path / "pair", harness.TALES_TARGET, harness.TALES_DRAFT)
    texts = []
    try:
        router = pair.router("--verifier-timeout", "0.5", "--admin", "127.0.0.1:0")
        address = re.search(r"metrics: http://(\S+)/metrics", router.log()).group(1)
        with grpc.insecure_channel(router.address, OWN) as channel:
            texts += gather_errors(channel)
            stub = generate_pb2_grpc.GenerationStub(channel)
            stream = stub.Generate(harness.request(PROMPTS[0], max_tokens=900, ignore_eos=True), timeout=30)
            next(stream)
            pair.verifier.kill()
            pair.drafter.kill()
            texts += harness.texts_of(refused(lambda: list(stream)))
            harness.wait_until(lambda: "draft: session lost" in router.log(), 30, "the router knows")
            harness.wait_until(lambda: "verifier: cannot attach" in router.log(), 30, "the router tried again")
            texts += harness.texts_of(refused(lambda: harness.Output.read(stub.Generate(harness.request(PROMPTS[0]), timeout=30))))
        assert re.search(r"(session lost|cannot attach).*\.sock", router.log()), "the log says more"
        live = json.loads(fetch(address, "/live.json")[2])
        events = [event["text"] for event in live["events"]]
        assert "draft: session lost" in events and "verifier: session lost" in events
        texts += events
        for method, path in (("GET", "/none"), ("POST", "/metrics"), ("GET", "/metrics/../../etc/passwd"), ("GET", "/%2e%2e/"),
                             ("DELETE", "/"), ("GET", "/live.json?since=/etc/passwd"), ("GET", "/metrics")):
            status, headers, body = fetch(address, path, method=method)
            texts += [body.replace("there are: /, ", ""), *headers.values()]
    finally:
        pair.close()
    told = [text for text in texts if harness.TELLTALE.search(text)]
    assert told == []
    assert len(texts) > 60


# ---------------------------------------------------------------- trace context

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_trace_context_goes_through_all_three_processes(serve, log_format):
    debug = {f"TANDEM_{process}LOG_LEVEL": "debug" for process in ("", "DRAFT_", "VERIFIER_")}
    server = serve(log_format=log_format, environment=debug)

    def generate(name, *values, **options):
        stream = server.stub.Generate(harness.request(PROMPTS[0], request_id=name, max_tokens=24, temperature=0, draft_length=4,
                                                      ignore_eos=True, **options),
                                      metadata=[("traceparent", value) for value in values], timeout=30)
        return harness.Output.read(stream)

    good = {"valid": f"00-{TRACE}-{SPAN}-01", "unsampled": f"00-{TRACE[::-1]}-{SPAN}-00", "later": f"cc-{'1' * 32}-{SPAN}-01-what-is-new"}
    bad = {"upper": f"00-{TRACE.upper()}-{SPAN}-01", "zero": f"00-{'0' * 32}-{SPAN}-01", "no-span": f"00-{TRACE}-{'0' * 16}-01",
           "short": f"00-{TRACE[1:]}-{SPAN}-01", "ff": f"ff-{TRACE}-{SPAN}-01", "longer": f"00-{TRACE}-{SPAN}-01-x",
           "dashes": f"00_{TRACE}_{SPAN}_01", "empty": "", "spaces": "x" * 55}
    for name, value in {**good, **bad}.items():
        generate(name, value)
    generate("absent")
    refused(lambda: generate("refused", good["valid"], top_p=2.0))
    assert server.stop() == 0

    def fields(line):
        if log_format == "json":
            return json.loads(line)
        return {**{key: value.strip('"') for key, value in re.findall(r' (\w+)=("[^"]*"|\S+)', line)},
                "process": line.split(":")[0], "message": re.sub(r"^\w+: \S+ \w+ \w+: (.*?)( \w+=.*)?$", r"\1", line)}

    lines = [fields(line) for line in server.log().splitlines()]
    opened = [line for line in lines if line["message"] == "slot opened"]
    for name in good:
        trace = good[name].split("-")[1]
        seen = [line for line in lines if line.get("trace_id") == trace]
        assert {line["process"] for line in seen} == {"router", "draft", "verifier"}, name
        assert {line["span_id"] for line in seen} == {SPAN}
        of_router = [line["message"] for line in seen if line["process"] == "router" and line.get("request_id") == name]
        assert of_router == ["request started", "request finished"]
        assert all("slot" in line and "epoch" in line for line in seen if line["process"] != "router")
    for line in lines:
        if line.get("request_id") in {*bad, "absent"}:
            assert "trace_id" not in line and "span_id" not in line, line
    (refusal,) = [line for line in lines if line.get("request_id") == "refused"]
    assert refusal["trace_id"] == TRACE and refusal["message"] == "request refused"
    without = [line for line in opened if "trace_id" not in line]
    assert len(without) >= 2 * (len(bad) + 1), "both workers opened slots for the others, without a trace"
