"""Tests errors, retries, TLS and tokens of the Python client."""

import asyncio
import threading

import grpc
import pytest

import harness
from certificates import Authority
from scripted_server import Answer
from tandem_client import (AsyncClient, CanceledError, Client, DeadlineExceededError, ResourceExhaustedError, RetryPolicy, TandemError,
                           UnauthenticatedError, UnavailableError, connection, errors)

EXHAUSTED, UNAVAILABLE = grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE
TOKEN = "client-token-3kq0v9x1m5c7"


def refused(code=EXHAUSTED, pushback="20", **values):
    return Answer(code=code, details="the queue is full", metadata=(("grpc-retry-pushback-ms", pushback), ("tandem-emitted-tokens", "0")),
                  **values)


def complete(kind, address, **options):
    """Runs one request with one of the clients. Returns (result or error, attempts)."""
    timeout = options.pop("timeout", None)
    if kind is Client:
        with Client(address, **options) as client:
            stream = client.generate("x", timeout=timeout)
            try:
                return stream.result(), stream.attempts
            except TandemError as error:
                return error, stream.attempts

    async def run():
        async with AsyncClient(address, **options) as client:
            stream = client.generate("x", timeout=timeout)
            try:
                return await stream.result(), stream.attempts
            except TandemError as error:
                return error, stream.attempts

    return asyncio.run(run())


both = pytest.mark.parametrize("kind", [Client, AsyncClient], ids=["sync", "async"])


@both
@pytest.mark.parametrize("code", [EXHAUSTED, UNAVAILABLE])
def test_a_refused_request_is_sent_again_when_the_server_says_so(scripted, kind, code):
    server = scripted(refused(code), refused(code, "60"), Answer(tokens=3))
    result, attempts = complete(kind, server.address)
    assert result.text == "0 1 2 " and attempts == 3
    first, second, third = server.times
    assert second - first >= 0.02 and third - second >= 0.06  # never earlier than the server wants
    assert server.requests[0] == server.requests[2]


@both
@pytest.mark.parametrize("answer", [
    Answer(code=EXHAUSTED, details="can never fit"),              # no hint
    Answer(code=UNAVAILABLE, details="the server drains"),
    refused(pushback="-1"),                                        # "do not come back"
    refused(pushback="soon"),
    refused(code=grpc.StatusCode.INTERNAL),                        # no status of a refusal
    refused(code=UNAVAILABLE, tokens=2),                           # tokens had come
], ids=["no hint", "drains", "negative", "no number", "internal", "after tokens"])
def test_other_failures_are_final(scripted, kind, answer):
    error, attempts = complete(kind, scripted(answer).address)
    assert attempts == 1 and type(error) is errors.CLASSES[answer.code] and error.message == answer.details
    assert [output.token_ids for output in error.outputs] == ([[0, 1]] if answer.tokens else [])


@both
def test_attempts_and_time_are_limited(scripted, kind):
    def fails(count, pushback="10", **options):
        error, attempts = complete(kind, scripted(*[refused(pushback=pushback)] * 6).address, **options)
        assert isinstance(error, ResourceExhaustedError) and attempts == count
        assert error.retry_after == int(pushback) / 1000 and error.emitted_tokens == 0

    fails(5)
    fails(2, retry=RetryPolicy(max_attempts=2))
    fails(1, retry=None)
    fails(1, "60001")                                   # beyond max_seconds
    fails(1, "300", retry=RetryPolicy(max_seconds=0.2))
    fails(1, "10000", timeout=5.0)                      # beyond the timeout of the call


def test_the_jitter_is_evenly_distributed_and_never_early():
    error = ResourceExhaustedError("full", code=EXHAUSTED, retry_after=2.0)
    assert [RetryPolicy(uniform=lambda: draw).delay(error, 1, 0.0) for draw in (0.0, 0.5, 1.0)] == [2.0, 2.25, 2.5]
    assert RetryPolicy(jitter=0).delay(error, 1, 0.0) == 2.0


def test_one_timeout_is_for_all_attempts(scripted):
    server = scripted(refused(pushback="100"), Answer(tokens=1, hangs=True))
    error, attempts = complete(Client, server.address, timeout=0.4)
    assert isinstance(error, DeadlineExceededError) and attempts == 2 and len(error.outputs[0].tokens) == 1


def test_a_stream_can_be_closed_while_it_waits(scripted):
    server = scripted(refused(pushback="30000"))
    with Client(server.address) as client:
        stream = client.generate("x")
        threading.Timer(0.1, stream.close).start()
        with pytest.raises(CanceledError):
            next(stream)

        async def closed():
            async with AsyncClient(scripted(refused(pushback="30000")).address) as client:
                stream = client.generate("x")
                asyncio.get_running_loop().call_later(0.1, stream.cancel)
                with pytest.raises(CanceledError):
                    await stream.result()

        asyncio.run(closed())
    assert len(server.requests) == 1


def test_a_full_queue_is_waited_for(servers):
    server = servers(environment={**harness.PATIENT, "TANDEM_MAX_QUEUE": "1"}, max_slots=1)
    long = dict(temperature=0, max_tokens=900, ignore_eos=True)
    with Client(server.address, timeout=60, retry=None) as impatient:
        running = impatient.generate("Once upon a time", **long)
        next(running)
        queued = impatient.generate("Once upon a time", **long)
        harness.wait_until(lambda: impatient.server_info().load.num_queued == 1, 10, "the queue is full")
        with pytest.raises(ResourceExhaustedError) as error:
            impatient.complete("Once upon a time", **long)
        assert error.value.retry_after > 0 and error.value.emitted_tokens == 0 and "retry after" in str(error.value)
        with Client(server.address, timeout=60, retry=RetryPolicy(max_attempts=100)) as patient:
            waits = patient.generate("The wolf said", temperature=0, max_tokens=3)
            done = []
            reader = threading.Thread(target=lambda: done.append(waits.result()))
            reader.start()
            harness.wait_until(lambda: waits.attempts >= 2, 20, "another attempt")
            running.close()
            queued.close()
            reader.join(30)
        assert done[0].usage.completion_tokens == 3


@both
def test_a_server_that_is_not_there_is_unavailable(kind):
    error, attempts = complete(kind, "127.0.0.1:1")
    assert isinstance(error, UnavailableError) and attempts == 1 and error.emitted_tokens is None
    error, _ = complete(kind, "127.0.0.1:1", wait_for_ready=True, timeout=0.2)
    assert isinstance(error, DeadlineExceededError)


@both
@pytest.mark.parametrize("address", [
    "http://127.0.0.1:38023", "HTTPS://example.org:1", "http://127.0.0.1:38023/v1", "grpc://127.0.0.1:1", "localhost", "127.0.0.1",
    "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:x", "127.0.0.1:1/", ":50051", "::1", "2001:db8::1", "[::1]", "", " a:1",
    "a:1\n", None, 50051])
def test_an_address_of_another_kind_is_refused_at_once(kind, address):
    with pytest.raises(ValueError) as error:
        kind(address)
    assert str(error.value) == (f"address: got {address!r}, allowed: HOST:PORT, or unix:PATH. The address is that of the server's line "
                                "`ready:`, and not that of its line `http:`")


def test_addresses_that_grpc_reads_itself_are_left_to_it():
    for address in ("localhost:1", "my_host.example.org.:65535", "[::1]:1", "[fe80::1%eth0]:1", "unix:/run/x", "unix:///run/x",
                    "unix-abstract:x", "dns:///example.org", "ipv4:10.0.0.1:1,10.0.0.2:1", "ipv6:[::1]:1"):
        connection.check_address(address)


@both
def test_a_closed_client_says_so(scripted, kind):
    address = scripted(Answer()).address
    calls = ("generate", "complete", "tokenize", "show")
    if kind is Client:
        client = Client(address)
        client.complete("x")
        client.close()
        client.close()
        for name in calls:
            with pytest.raises(CanceledError, match="the client is closed"):
                getattr(client, name)("x")
        with pytest.raises(CanceledError, match="the client is closed"):
            client.map(["x"])
        return

    async def run():
        for used in (True, False):
            async with AsyncClient(address) as client:
                if used:
                    await client.complete("x")
            for name in calls:
                with pytest.raises(CanceledError, match="the client is closed"):
                    await getattr(client, name)("x")

    asyncio.run(run())


def test_a_request_is_not_sent_again_by_a_closed_client(scripted):
    server = scripted(*[refused(pushback="900")] * 2)
    client = Client(server.address)
    stream = client.generate("x")
    threading.Timer(0.5, client.close).start()
    for _ in range(2):
        with pytest.raises(CanceledError, match="the client is closed"):
            next(stream)

    async def run():
        client = AsyncClient(server.address)
        stream = client.generate("x")
        reader = asyncio.ensure_future(stream.result())
        await asyncio.sleep(0.5)
        await client.close()
        with pytest.raises(CanceledError, match="the client is closed"):
            await reader
        with pytest.raises(CanceledError, match="the client is closed"):
            await stream.result()

    asyncio.run(run())
    assert len(server.requests) == 2


@both
def test_every_status_has_its_class(scripted, kind):
    assert {error.__name__ for error in errors.CLASSES.values()} == {
        name for name in vars(errors) if name.endswith("Error") and name != "TandemError"}
    error, _ = complete(kind, scripted(Answer(code=grpc.StatusCode.DATA_LOSS, details="other")).address)
    assert type(error) is TandemError and str(error) == "DATA_LOSS: other"


# ---------------------------------------------------------------- TLS and tokens


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("certificates") / "ours")


@pytest.fixture(scope="module")
def guarded(servers, authority, tmp_path_factory):
    """A server that wants a certificate and a token."""
    identity = authority.issue("tandem")
    tokens = tmp_path_factory.mktemp("tokens") / "tokens"
    tokens.write_text(f"client {TOKEN}\n")
    tokens.chmod(0o600)
    return servers(tls_certificate=identity.certificate, tls_key=identity.key, tls_client_ca=authority.certificate, token_file=tokens)


def test_tls_with_certificates_and_a_token(guarded, authority):
    mine = authority.issue("client")
    tls = dict(ca=authority.certificate, certificate=mine.certificate, key=mine.key, timeout=20)
    calls = []

    def token():
        calls.append(1)
        return TOKEN

    with Client(guarded.address, token=token, **tls) as client:
        text = client.complete("Once upon a time", temperature=0, max_tokens=5).text
        assert client.server_info().model and len(calls) == 2

    async def run(**options):
        async with AsyncClient(guarded.address, **{**tls, **options}) as client:
            return (await client.complete("Once upon a time", temperature=0, max_tokens=5)).text

    assert asyncio.run(run(token=TOKEN, ca=authority.certificate.read_bytes())) == text
    for bad in ({}, {"token": TOKEN + "x"}):
        with pytest.raises(UnauthenticatedError), Client(guarded.address, **tls, **bad) as client:
            client.tokenize("x")
        with pytest.raises(UnauthenticatedError):
            asyncio.run(run(**bad))
    with pytest.raises(UnavailableError), Client(guarded.address, ca=authority.certificate, token=TOKEN, timeout=20) as client:
        client.server_info()  # no certificate
    with pytest.raises(UnavailableError), Client(guarded.address, server_name="other.example", token=TOKEN, **tls) as client:
        client.server_info()  # not that server


def test_a_token_does_not_leave_the_machine_in_plaintext():
    for address in ("10.0.0.1:50051", "tandem.example.org:1", "dns:///example.org:1", "[2001:db8::1]:50051", "ipv4:10.1.1.1:1"):
        for kind in (Client, AsyncClient):
            with pytest.raises(ValueError, match="use TLS"):
                kind(address, token=TOKEN)
    AsyncClient("10.0.0.1:50051", token=TOKEN, tls=True)
    AsyncClient("10.0.0.1:50051", token=TOKEN, insecure=True)
    local = ("127.0.0.1:1", "localhost:1", "[::1]:1", "unix:/run/x", "ipv6:[::1]:1", "dns:///localhost:2", "127.1.2.3:5")
    assert all(connection.is_local(address) for address in local)
    with pytest.raises(ValueError, match="certificate and its key"):
        Client(certificate=b"x")
