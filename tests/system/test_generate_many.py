"""Tests of GenerateMany: many calls of Generate over one stream. Each call must behave as one with a stream of its own does."""

import collections
import os
import queue
import re
import signal
import threading
import time
import urllib.request

import grpc
import pytest

import harness
from harness import wait_until
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

PROMPT = PROMPTS[0]
ENDLESS = dict(max_tokens=1000, ignore_eos=True, temperature=0)


@pytest.fixture(scope="module")
def server(servers):
    return servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4, environment={"TANDEM_MAX_STREAM_CALLS": "40"})


class Stream:
    """A client of GenerateMany. A thread reads, so that the server never waits for this client."""

    def __init__(self, stub, metadata=(), reads=True):
        self.responses = collections.defaultdict(list)  # by call
        self.ends = {}  # by call: pb.CallEnd
        self.num_messages = 0
        self.status = None
        self.reads = False
        self._requests = queue.SimpleQueue()
        self.call = stub.GenerateMany(iter(self._requests.get, None), metadata=metadata, timeout=120)
        self._thread = threading.Thread(target=self._read, daemon=True)
        if reads:
            self.read()

    def read(self):
        self.reads = True
        self._thread.start()

    def _read(self):
        try:
            for message in self.call:
                self.num_messages += 1
                for event in message.events:
                    assert event.call not in self.ends, "an event after the end"
                    if event.HasField("response"):
                        self.responses[event.call].append(event.response)
                    if event.HasField("end"):
                        self.ends[event.call] = event.end
            self.status = self.call.code()
        except grpc.RpcError as error:
            self.status = error.code()
            harness.notice(error)

    def send(self, **fields):
        self._requests.put(pb.GenerateManyRequest(**fields))

    def begin(self, call, prompt=PROMPT, fields=None, **options):
        self.send(call=call, generate=harness.request(prompt, **options), **(fields or {}))

    def cancel(self, call):
        self.send(call=call, cancel=pb.CancelCall())

    def half_close(self):
        self._requests.put(None)

    def end_of(self, call):
        wait_until(lambda: call in self.ends or self.status is not None, 60, f"call {call} has ended")
        return self.ends[call]

    def output_of(self, call):
        end = self.end_of(call)
        assert end.code == 0, end.message
        return harness.Output.read(self.responses[call])

    def wait(self):
        self._thread.join(60)
        return self.status


@pytest.fixture
def stream(server):
    made = Stream(server.stub)
    yield made
    made.call.cancel()
    assert made.wait() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.OK)
    wait_until(lambda: idle(server), 10, "the slots are free")


def idle(server):
    load = server.info().load
    return load.num_running + load.num_queued == 0


def test_each_call_is_what_a_call_of_its_own_gives(server, stream):
    modes = [dict(temperature=0), dict(seed=7), dict(seed=8, temperature=0.7, top_p=0.9), dict(seed=9, draft_length=0),
             dict(temperature=0, draft_length=3, logprobs=3)]
    calls = [(prompt, mode) for prompt in PROMPTS[:3] for mode in modes]
    for number, (prompt, mode) in enumerate(calls, 100):
        stream.begin(number, prompt, max_tokens=30, **mode)
    for number, (prompt, mode) in enumerate(calls, 100):
        got, want = stream.output_of(number), server.generate(prompt, max_tokens=30, **mode)
        assert got.bytes == want.bytes and got.token_ids == want.token_ids
        assert got.completion.finish_reason == want.completion.finish_reason
        assert got.completion.usage.prompt_tokens == want.completion.usage.prompt_tokens
        assert [[top.token_id for top in row.top] for row in got.logprobs] == [[top.token_id for top in row.top] for row in want.logprobs]
    assert stream.num_messages < sum(len(responses) for responses in stream.responses.values()), "messages carry several events"


def test_choices_share_a_call(server, stream):
    stream.begin(1, n=3, max_tokens=12, seed=4)
    assert stream.end_of(1).code == 0
    assert {response.index for response in stream.responses[1]} == {0, 1, 2}
    assert sum(response.HasField("completion") for response in stream.responses[1]) == 3


def test_a_number_can_be_used_again(server, stream):
    for _ in range(3):
        stream.responses.clear()
        stream.ends.clear()
        stream.begin(5, max_tokens=5, temperature=0)
        assert len(stream.output_of(5).token_ids) == 5


def test_a_refused_call_says_what_generate_says_and_its_neighbor_goes_on(server, stream):
    stream.begin(1, max_tokens=60, ignore_eos=True, temperature=0)
    for number, bad in enumerate([dict(temperature=-1), dict(model="other"), dict(top_k=-2), dict(top_p=7)], 2):
        with pytest.raises(grpc.RpcError) as refused:
            server.generate(PROMPT, **bad)
        stream.begin(number, **bad)
        end = stream.end_of(number)
        assert (end.code, end.message) == (refused.value.code().value[0], refused.value.details())
    stream.begin(20, fields={"tenant": "x" * 300}, max_tokens=2)
    assert "metadata tandem-tenant: got 300 bytes" in stream.end_of(20).message
    stream.begin(22, fields={"traceparent": "x" * 20_000}, max_tokens=2)
    assert "got 20000 bytes" in stream.end_of(22).message
    for field in ("tenant", "traceparent", "authorization"):
        stream.begin(21, fields={field: "a\nb"}, max_tokens=2)
        end = stream.end_of(21)
        assert end.code == grpc.StatusCode.INVALID_ARGUMENT.value[0] and "must be printable ASCII" in end.message
        del stream.ends[21]
    assert len(stream.output_of(1).token_ids) == 60


def test_cancel_frees_the_slot_and_ends_the_call(server, stream):
    stream.begin(1, **ENDLESS)
    stream.begin(2, max_tokens=40, temperature=0)
    wait_until(lambda: stream.responses[1], 20, "the call runs")
    stream.cancel(1)
    stream.cancel(1)  # once is enough
    stream.cancel(77)  # there is no such call
    end = stream.end_of(1)
    assert end.code == grpc.StatusCode.CANCELLED.value[0]
    assert stream.output_of(2).bytes == server.generate(PROMPT, max_tokens=40, temperature=0).bytes
    wait_until(lambda: idle(server), 10, "the slot is free")
    assert sum(len(response.token_ids) for response in stream.responses[1]) < ENDLESS["max_tokens"]


def test_a_client_that_cancels_the_stream_cancels_its_calls(server):
    stream = Stream(server.stub)
    for number in range(6):  # two wait for a slot
        stream.begin(number, **ENDLESS)
    wait_until(lambda: server.info().load.num_running == 4, 20, "they run")
    stream.call.cancel()
    assert stream.wait() == grpc.StatusCode.CANCELLED
    wait_until(lambda: idle(server), 10, "the slots are free")


def test_a_client_that_ends_its_side_gets_the_rest(server):
    stream = Stream(server.stub)
    stream.begin(1, max_tokens=30, temperature=0)
    stream.half_close()
    assert stream.wait() == grpc.StatusCode.OK
    assert len(stream.output_of(1).token_ids) == 30


@pytest.mark.parametrize("fault, message", [("twice", "which is under way"), ("no action", "must be generate or cancel")])
def test_a_stream_that_breaks_the_protocol_ends(server, fault, message):
    stream = Stream(server.stub)
    stream.begin(3, **ENDLESS)
    wait_until(lambda: stream.responses[3], 20, "the call runs")
    if fault == "twice":
        stream.begin(3, max_tokens=1)
    else:
        stream.send(call=4)
    assert stream.wait() == grpc.StatusCode.INVALID_ARGUMENT
    assert message in stream.call.details()
    wait_until(lambda: idle(server), 10, "the slots are free")


def test_a_stream_has_a_limit_of_calls(server, stream):
    for number in range(41):
        stream.begin(number, **ENDLESS)
    end = stream.end_of(40)
    assert end.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0] and end.retry_milliseconds > 0
    assert end.message == "the stream has 40 calls under way, and takes no more"
    assert dict(stream.call.initial_metadata())["tandem-max-stream-calls"] == "40"
    stream.cancel(39)
    assert stream.end_of(39).code == grpc.StatusCode.CANCELLED.value[0]
    stream.begin(41, max_tokens=0)  # refused for another reason, so there is room
    assert stream.end_of(41).code == grpc.StatusCode.INVALID_ARGUMENT.value[0]


def test_a_full_queue_says_when_to_come_back(servers):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=1, max_queue=1)
    stream = Stream(server.stub)
    for number in range(3):
        stream.begin(number, **ENDLESS)
    end = stream.end_of(2)
    assert end.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0] and end.retry_milliseconds > 0
    stream.call.cancel()
    stream.wait()
    wait_until(lambda: idle(server), 10, "the slots are free")


@pytest.fixture
def unread(servers, models):
    """Returns a server of long outputs, and a stream whose client does not read yet."""
    target = models.random(vocabulary_size=4096, hidden_size=32, layers=1, dtype="bf16", max_positions=16384, seed=9,
                           tokenizer_from=harness.TALES_TARGET)
    server = servers(target=target, drafter="none", max_slots=3, admin="127.0.0.1:0")
    # This turns off the probe that lets the client's own buffer grow to megabytes.
    channel = grpc.insecure_channel(server.address, options=[("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)])
    stream = Stream(harness.generate_pb2_grpc.GenerationStub(channel), reads=False)
    yield server, stream
    stream.call.cancel()
    if stream.reads:
        stream.wait()
    channel.close()


def num_cut_off(server):
    """Returns how many calls the server refused or cut off. A call may run for a shorter time than a question takes, so the tests
    count ends."""
    with urllib.request.urlopen(f"http://{harness.admin_addresses(server, ['router'])['router']}/metrics", timeout=10) as page:
        found = re.search(r'^tandem_requests_total\{.*status="RESOURCE_EXHAUSTED"\} (\d+)$', page.read().decode(), re.MULTILINE)
    return int(found[1]) if found else 0


def test_a_client_that_does_not_read_loses_its_calls_alone(unread):
    server, stream = unread
    before = num_cut_off(server)
    for number in range(2):
        stream.begin(number, [1, 2, 3 + number], temperature=0, max_tokens=16_000, ignore_eos=True, logprobs=20)
    assert len(server.generate([1, 2, 3], temperature=0, max_tokens=400, ignore_eos=True).token_ids) == 400, "a neighbor does not wait"
    wait_until(lambda: num_cut_off(server) == before + 2, 60, "both are cut off")
    wait_until(lambda: idle(server), 10, "the slots are free")
    stream.read()  # what was given to gRPC is there
    for number in range(2):
        end = stream.end_of(number)
        assert end.code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0] and end.message.startswith("client too slow: ")
        assert end.emitted_tokens == sum(len(response.token_ids) for response in stream.responses[number]) < 16_000
    stream.begin(9, [1, 2, 3], max_tokens=5, ignore_eos=True)
    assert len(stream.output_of(9).token_ids) == 5, "the stream is as good as before"


def test_refusals_that_nobody_reads_are_bounded(unread):
    server, stream = unread
    before = num_cut_off(server)
    stream.begin(0, [1, 2, 3], temperature=0, max_tokens=16_000, ignore_eos=True, logprobs=20)  # fills what is between the two
    wait_until(lambda: num_cut_off(server) > before, 60, "it is cut off")
    for number in range(1, 6000):
        stream.begin(number, fields={"tenant": "\n"}, max_tokens=1)
    time.sleep(1)
    stream.read()
    assert stream.wait() == grpc.StatusCode.UNAVAILABLE
    assert stream.call.details() == "too many ends of calls wait to be read"


def test_events_keep_to_the_limit_of_messages(servers):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4,
                     environment={"TANDEM_MAX_MESSAGE_BYTES": "16384"})
    stream = Stream(server.stub, reads=False)
    for number in range(4):
        stream.begin(number, max_tokens=60, ignore_eos=True, logprobs=20)
    wait_until(lambda: idle(server) and server.info().load.num_finished > 0, 60, "they are done, and wait")
    stream.read()
    for number in range(4):
        assert len(stream.output_of(number).token_ids) == 60
    stream.call.cancel()
    stream.wait()


def test_padding_does_not_count_as_output_that_waits(servers):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4,
                     environment={"TANDEM_STREAM_PADDING_BYTES": "4096", "TANDEM_STREAM_BUFFER_BYTES": "16384"})
    stream = Stream(server.stub)
    for number in range(4):
        stream.begin(number, max_tokens=60, ignore_eos=True, temperature=0)
    for number in range(4):
        assert len(stream.output_of(number).token_ids) == 60
        assert all(response.ByteSize() % 4096 == 0 for response in stream.responses[number])
    stream.call.cancel()
    stream.wait()


def test_tenants_and_traces_are_fields(server, stream):
    prompt = list(range(200, 400))
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

    def cached(number, tenant):
        stream.begin(number, prompt, fields={"tenant": tenant, "traceparent": trace}, max_tokens=2)
        return stream.output_of(number).completion.usage.cached_prompt_tokens

    assert cached(1, "red") == 0
    assert cached(2, "red") > 0
    assert cached(3, "blue") == 0, "another tenant shares no computed prompts"
    wait_until(lambda: trace.split("-")[1] in server.log(), 10, "the log has the trace")


def test_the_token_of_the_stream_and_of_each_call_is_checked(tmp_path):
    tokens = tmp_path / "tokens"
    client, other = "c" * 40, "d" * 40
    tokens.write_text(f"client {client}\nclient {other}\n")
    tokens.chmod(0o600)
    server = harness.Server(tmp_path, token_file=tokens)
    try:
        for metadata in ([], [("authorization", "Bearer wrong")]):
            refused = Stream(server.stub, metadata)
            assert refused.wait() == grpc.StatusCode.UNAUTHENTICATED
        stream = Stream(server.stub, [("authorization", f"Bearer {client}")])
        stream.begin(1, max_tokens=3)
        stream.begin(2, max_tokens=3, fields={"authorization": f"Bearer {other}"})
        assert stream.output_of(1) and stream.output_of(2)
        for number, bad in enumerate(["Bearer wrong", "", client], 3):
            stream.begin(number, max_tokens=3, fields={"authorization": bad})
            assert stream.end_of(number).code == grpc.StatusCode.UNAUTHENTICATED.value[0]
            assert not stream.responses[number]
    finally:
        server.stop()


def test_a_server_that_stops_lets_calls_finish_and_does_not_wait_for_idle_streams(tmp_path):
    server = harness.Server(tmp_path, target=harness.TALES_TARGET, draft=harness.TALES_DRAFT)
    idle_stream, stream = Stream(server.stub), Stream(server.stub)
    idle_stream.begin(1, max_tokens=2)
    assert idle_stream.output_of(1)
    stream.begin(1, **ENDLESS)
    wait_until(lambda: stream.responses[1], 20, "the call runs")
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: "draining" in server.log(), 10, "the server drains")
    stream.begin(2, max_tokens=2)
    assert stream.end_of(2).code == grpc.StatusCode.UNAVAILABLE.value[0]
    assert len(stream.output_of(1).token_ids) == ENDLESS["max_tokens"]
    began = time.monotonic()
    assert stream.wait() == idle_stream.wait() == grpc.StatusCode.UNAVAILABLE
    assert server.process.wait(20) == 0
    assert time.monotonic() - began < 5
    server.stop()


def test_the_end_of_the_router_ends_the_calls(tmp_path):
    server = harness.Server(tmp_path, target=harness.TALES_TARGET, draft=harness.TALES_DRAFT)
    stream = Stream(server.stub)
    stream.begin(1, **ENDLESS)
    wait_until(lambda: stream.responses[1], 20, "the call runs")
    os.kill(server.child("tandem-router"), signal.SIGKILL)
    assert stream.wait() == grpc.StatusCode.UNAVAILABLE
    assert 1 not in stream.ends
    server.stop()
