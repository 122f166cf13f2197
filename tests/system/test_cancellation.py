"""A client that leaves, in whatever phase, frees its slot: the next one runs at once.

The model is slow enough, and allowed to go on long enough, that waiting for the one that left would take far longer than the limit.
"""

import random
import time

import grpc
import pytest

import harness

LIMIT_SECONDS = 2.0
LONG = dict(temperature=0, max_tokens=15_000, ignore_eos=True)
PROMPT = [1, 2, 3]
LONG_PROMPT = [300 + i % 1000 for i in range(12_000)]


@pytest.fixture(scope="module")
def server(servers, models):
    target = models.random(vocabulary_size=4096, hidden_size=256, layers=4, heads=4, kv_heads=2, head_size=64,
                           intermediate_size=768, dtype="bf16", max_positions=16384, tokenizer_from=harness.TALES_TARGET)
    draft = models.random(vocabulary_size=4096, hidden_size=32, layers=1, dtype="bf16", max_positions=16384, seed=7,
                          tokenizer_from=harness.TALES_DRAFT)
    return servers(target=target, draft=draft, max_slots=1)


@pytest.fixture(scope="module")
def want(server):
    return server.generate(PROMPT, temperature=0, max_tokens=4, ignore_eos=True).bytes


def next_one_runs(server, want):
    start = time.monotonic()
    output = server.generate(PROMPT, temperature=0, max_tokens=4, ignore_eos=True)
    assert time.monotonic() - start < LIMIT_SECONDS
    assert output.bytes == want


def assert_still_running(stream):
    assert stream.is_active(), f"{stream.code()}: {stream.details()}"


def test_waiting_would_take_longer_than_the_limit(server):
    stream = server.start(PROMPT, **LONG)
    next(stream)
    time.sleep(LIMIT_SECONDS)  # what is tested is that it has not ended by then
    assert_still_running(stream)
    stream.cancel()


def test_cancelled_while_queued(server, want):
    running = server.start(PROMPT, **LONG)
    next(running)
    queued = [server.start(PROMPT, **LONG) for _ in range(3)]
    for stream in queued:
        stream.cancel()
    assert_still_running(running)
    running.cancel()
    next_one_runs(server, want)


def test_a_place_in_the_queue_is_kept(server, want):
    running = server.start(PROMPT, **LONG)
    next(running)
    gone = server.start(PROMPT, **LONG)
    waiting = server.start(PROMPT, temperature=0, max_tokens=4, ignore_eos=True)
    gone.cancel()
    running.cancel()
    assert harness.Output.read(waiting).bytes == want


@pytest.mark.parametrize("delay", [0, 0.02, 0.2])
def test_cancelled_during_prefill(server, want, delay):
    stream = server.start(LONG_PROMPT, **LONG)
    time.sleep(delay)
    assert_still_running(stream)
    stream.cancel()
    next_one_runs(server, want)


@pytest.mark.parametrize("messages", [1, 5, 40])
@pytest.mark.parametrize("draft_length", [0, 4])
def test_cancelled_while_decoding(server, want, messages, draft_length):
    stream = server.start(PROMPT, draft_length=draft_length, **LONG)
    for _ in range(messages):
        next(stream)
    stream.cancel()
    next_one_runs(server, want)


@pytest.mark.parametrize("prompt,messages", [(LONG_PROMPT, 0), (PROMPT, 3)], ids=["prefill", "decoding"])
def test_disconnected(server, want, prompt, messages):
    channel = server.new_channel()
    stream = harness.generate_pb2_grpc.GenerationStub(channel).Generate(harness.request(prompt, **LONG))
    for _ in range(messages):
        next(stream)
    channel.close()
    next_one_runs(server, want)


def test_disconnected_while_queued(server, want):
    running = server.start(PROMPT, **LONG)
    next(running)
    channel = server.new_channel()
    harness.generate_pb2_grpc.GenerationStub(channel).Generate(harness.request(PROMPT, **LONG))
    grpc.channel_ready_future(channel).result(5)
    channel.close()
    assert_still_running(running)
    running.cancel()
    next_one_runs(server, want)


@pytest.mark.parametrize("prompt", [LONG_PROMPT, PROMPT], ids=["prefill", "decoding"])
def test_deadline_passed(server, want, prompt):
    with pytest.raises(grpc.RpcError) as error:
        harness.Output.read(server.start(prompt, timeout=0.3, **LONG))
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    next_one_runs(server, want)


def test_deadline_passed_while_queued(server, want):
    running = server.start(PROMPT, **LONG)
    next(running)
    with pytest.raises(grpc.RpcError) as error:
        harness.Output.read(server.start(PROMPT, timeout=0.2, **LONG))
    assert error.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert_still_running(running)
    running.cancel()
    next_one_runs(server, want)


def test_a_reader_that_does_not_read_and_leaves(server, want):
    channel = server.new_channel()
    stream = harness.generate_pb2_grpc.GenerationStub(channel).Generate(harness.request(PROMPT, **LONG))
    next(stream)
    time.sleep(1)  # reads nothing meanwhile
    channel.close()
    next_one_runs(server, want)


def test_many_that_leave_at_random(server, want):
    generator = random.Random(1)
    for _ in range(150):
        stream = server.start(LONG_PROMPT[:generator.choice([3, 500, 3000])], draft_length=generator.randrange(5), **LONG)
        if generator.random() < 0.5:
            time.sleep(generator.random() * 0.03)
        stream.cancel()
    next_one_runs(server, want)
