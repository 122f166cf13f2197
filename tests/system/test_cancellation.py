"""Tests that a client that leaves in any phase frees its slot, so that the next request runs at once.

The model is so slow, and its outputs are so long, that waiting for the abandoned request would take far longer than the limit.
The last test measures the time until the workers have the slot back.
"""

import random
import statistics
import time

import grpc
import pytest

import cluster
import harness
from tandem.v1 import generate_pb2 as pb

LIMIT_SECONDS = 2.0
LONG = dict(temperature=0, max_tokens=15_000, ignore_eos=True)
PROMPT = [1, 2, 3]
LONG_PROMPT = [300 + i % 1000 for i in range(12_000)]


@pytest.fixture(scope="module")
def folders(models):
    target = models.random(vocabulary_size=4096, hidden_size=256, layers=4, heads=4, kv_heads=2, head_size=64,
                           intermediate_size=768, dtype="bf16", max_positions=16384, tokenizer_from=harness.TALES_TARGET)
    draft = models.random(vocabulary_size=4096, hidden_size=32, layers=1, dtype="bf16", max_positions=16384, seed=7,
                          tokenizer_from=harness.TALES_DRAFT)
    return dict(target=target, draft=draft)


@pytest.fixture(scope="module")
def server(servers, folders):
    return servers(**folders, max_slots=1, environment=harness.PATIENT)  # nobody reads the long streams to their ends


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
    time.sleep(LIMIT_SECONDS)  # the test is that it has not ended by then
    assert_still_running(stream)
    stream.cancel()


def test_canceled_while_queued(server, want):
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
def test_canceled_during_prefill(server, want, delay):
    stream = server.start(LONG_PROMPT, **LONG)
    time.sleep(delay)
    assert_still_running(stream)
    stream.cancel()
    next_one_runs(server, want)


@pytest.mark.parametrize("messages", [1, 5, 40])
@pytest.mark.parametrize("draft_length", [0, 4])
def test_canceled_while_decoding(server, want, messages, draft_length):
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
    grpc.channel_ready_future(channel).result(30)
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


# ---------------------------------------------------------------- the time until a slot is free

CANCELS = 50
STEP_ROWS = 128
PROMPT_ROWS = 16 * STEP_ROWS
# The promised time, in addition to the current round. The median must keep it. One call in twenty may meet a busy machine, because two
# cores run the test, the router and both workers. Such a call gets five times the limit.
PROMISED_SECONDS = 0.05
SLACK_SECONDS = 0.25


@pytest.fixture(scope="module")
def pair(tmp_path_factory, folders):
    running = cluster.Cluster(tmp_path_factory.mktemp("pair") / "cluster", folders["target"], folders["draft"],
                              worker_arguments=["--threads", 1, "--max-slots", 1])
    router = running.router("--step-rows", STEP_ROWS)
    harness.wait_until(lambda: router.info().drafter_attached, 30, "the drafter is attached")
    yield running
    running.close()


def prompt_number(number):
    """Returns prompts without a common page, so that the prefix cache finds nothing."""
    return [300 + (7 * i + number) % 3000 for i in range(PROMPT_ROWS)]


def open_slots(pair):
    """Returns the workers' own count, which they report at once, also while they compute."""
    return [worker.pong().num_open_slots for worker in pair.workers()]


def round_seconds(stream):
    """Returns the time of a round of the stream. Each round ends with a token that was not drafted."""
    def num_rounds():
        return sum(source != pb.TOKEN_SOURCE_ACCEPTED for source in list(stream.output.sources))

    harness.wait_until(lambda: num_rounds() > 0, 10, "the first token")
    first, began = num_rounds(), time.monotonic()
    harness.wait_until(lambda: num_rounds() >= first + 10, 10, "ten more rounds")
    return (time.monotonic() - began) / (num_rounds() - first)


@pytest.mark.parametrize("phase", ["prefill", "plain", "drafting"])
def test_both_workers_have_the_slot_back_a_round_after_the_cancel(pair, phase):
    router = pair.routers[0]
    generator = random.Random(phase)
    want_open = [1, 1] if phase == "drafting" else [1, 0]
    rounds = []
    if phase == "prefill":  # a round is one piece of the prompt
        for number in range(3):
            completion = router.generate(prompt_number(number), temperature=0, max_tokens=1).completion
            assert completion.usage.cached_prompt_tokens == 0
            rounds.append(completion.timings.prefill_seconds * STEP_ROWS / PROMPT_ROWS)
    seconds = []
    for number in range(CANCELS):
        harness.wait_until(lambda: open_slots(pair) == [0, 0], 10, "the slot is free")
        if phase == "prefill":
            stream = router.stream(prompt_number(100 + number), draft_length=0, **LONG)
            # The worker reports after each batch, and this was the first one.
            harness.wait_until(lambda: open_slots(pair) == want_open, 10, "the prompt is being worked off")
            time.sleep(generator.uniform(0, 0.4 * min(rounds) * PROMPT_ROWS / STEP_ROWS))
        else:
            stream = router.stream(PROMPT, draft_length=4 if phase == "drafting" else 0, **LONG)
            rounds.append(round_seconds(stream))
            time.sleep(generator.uniform(0, 2 * rounds[-1]))  # at any time within a round
        assert open_slots(pair) == want_open and not stream.done
        assert phase != "prefill" or stream.num_tokens == 0
        canceled_at = time.monotonic()
        stream.call.cancel()
        while open_slots(pair) != [0, 0]:
            assert time.monotonic() < canceled_at + 10, "the slot is not free"
        seconds.append(time.monotonic() - canceled_at)
        stream.join(10)
        assert stream.error.code() == grpc.StatusCode.CANCELLED
    seconds.sort()
    a_round = statistics.median(rounds)
    print(f"{phase}: {CANCELS} slots free after {1000 * statistics.median(seconds):.1f} ms (median), "
          f"{1000 * seconds[CANCELS * 19 // 20]:.1f} ms (p95), {1000 * seconds[-1]:.1f} ms (most); "
          f"a round takes {1000 * a_round:.1f} ms")
    assert statistics.median(seconds) <= a_round + PROMISED_SECONDS
    assert seconds[CANCELS * 19 // 20] <= a_round + SLACK_SECONDS
