"""Tests that a call can have several outputs for its prompt (`n`), and that each is what a call of its own gives."""

import os
import signal
import time

import grpc
import pytest

import harness
from harness import wait_until
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb

PROMPT = PROMPTS[0]
LONG = [300 + i % 1000 for i in range(700)]


@pytest.fixture(scope="module")
def server(servers):
    return servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, max_slots=4, environment={"TANDEM_MAX_CHOICES": "8"})


def choices(responses):
    """Returns [Output] by index, and the order in which the indices came."""
    outputs, order = {}, []
    for response in responses:
        order.append(response.index)
        outputs.setdefault(response.index, harness.Output([], "", [], [], None, set())).add(response)
    assert sorted(outputs) == list(range(len(outputs)))
    assert all(output.completion is not None for output in outputs.values())
    return [outputs[i] for i in range(len(outputs))], order


@pytest.mark.parametrize("mode", [dict(temperature=0), dict(seed=40), dict(seed=2**64 - 2, draft_length=3), dict(seed=5, temperature=0.6)])
def test_each_choice_is_what_a_call_of_its_own_gives(server, mode):
    outputs, _ = choices(server.start(PROMPT, n=4, max_tokens=40, ignore_eos=True, request_id="mine", **mode))
    assert len(outputs) == 4
    for i, output in enumerate(outputs):
        alone = dict(mode, seed=(mode["seed"] + i) % 2**64) if "seed" in mode else mode
        assert output.bytes == server.generate(PROMPT, max_tokens=40, ignore_eos=True, **alone).bytes
        assert output.request_ids == {"mine"}
        usage = output.completion.usage
        assert usage.completion_tokens == len(output.token_ids) == 40
        if "seed" in mode:
            assert output.completion.seed == alone["seed"]
    assert (len({output.text for output in outputs}) > 1) == ("seed" in mode)


def test_sampled_choices_differ_without_a_seed(server):
    outputs, order = choices(server.start(PROMPT, n=3, max_tokens=60, ignore_eos=True))
    assert len({output.text for output in outputs}) == 3
    assert order[0] == 0
    last = {index: len(order) - order[::-1].index(index) for index in range(3)}
    assert order.index(1) < last[0] and order.index(2) < last[1], f"they are streamed one after the other: {order}"


def test_one_choice_is_the_default(server):
    assert {response.index for response in server.start(PROMPT, max_tokens=4)} == {0}
    assert {response.index for response in server.start(PROMPT, max_tokens=4, n=1)} == {0}


def test_each_choice_ends_by_itself(server):
    """One stops early. The others go on."""
    alone = [server.generate(PROMPT, seed=40 + i, max_tokens=60, ignore_eos=True) for i in range(3)]
    stop = next(token for token in alone[0].token_ids[5:] if all(token not in other.token_ids for other in alone[1:]))
    outputs, _ = choices(server.start(PROMPT, n=3, seed=40, max_tokens=60, ignore_eos=True, stop_token_ids=[stop]))
    assert outputs[0].completion.finish_reason == pb.FINISH_REASON_STOP
    assert len(outputs[0].token_ids) < 60
    for output, other in zip(outputs[1:], alone[1:]):
        assert output.completion.finish_reason == pb.FINISH_REASON_LENGTH
        assert output.bytes == other.bytes


def test_the_prompt_is_computed_once(server):
    outputs, _ = choices(server.start(LONG, n=4, max_tokens=8, ignore_eos=True, temperature=0))
    page = server.info().load.kv_page_tokens
    assert outputs[0].completion.usage.cached_prompt_tokens == 0
    for output in outputs[1:]:
        assert output.completion.usage.cached_prompt_tokens >= len(LONG) - 2 * page


def test_more_choices_than_slots_and_a_full_queue(servers):
    server = servers(target=harness.TALES_TARGET, drafter="none", max_slots=2, max_queue=1)
    outputs, _ = choices(server.start(PROMPT, n=8, seed=1, max_tokens=20, ignore_eos=True))
    assert len(outputs) == 8
    assert outputs[7].bytes == server.generate(PROMPT, seed=8, max_tokens=20, ignore_eos=True).bytes


def test_the_limit_has_a_flag(server):
    for n, given in ((9, "9"), (0, "0"), (-1, "-1")):
        with pytest.raises(grpc.RpcError) as error:
            server.generate(PROMPT, n=n)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert f"sampling_params.n: got {given}, allowed: from 1 to 8" in error.value.details()


def test_a_canceled_call_frees_the_slots_of_all_choices(server):
    stream = server.start(PROMPT, n=4, seed=1, max_tokens=700, ignore_eos=True)
    seen = set()
    for response in stream:
        seen.add(response.index)
        if len(seen) == 4:
            break
    assert server.info().load.num_running == 4
    stream.cancel()
    wait_until(lambda: server.info().load.num_running == 0, 5, "all four slots are free")
    assert len(server.generate(PROMPT, n=1, max_tokens=4, ignore_eos=True).token_ids) == 4


def test_an_id_is_taken_until_the_last_choice_has_ended(server):
    """The first choice ends at once, because its first token is a stop token."""
    options = dict(temperature=5.0, ignore_eos=True)  # hardly any token comes twice
    first = server.generate(PROMPT, seed=40, max_tokens=1, **options).token_ids
    assert first[0] not in server.generate(PROMPT, seed=41, max_tokens=400, **options).token_ids
    options.update(stop_token_ids=first, request_id="twice", seed=40)
    stream = server.start(PROMPT, n=2, max_tokens=400, **options)
    responses = [next(stream)]
    while responses[-1].index == 0:
        responses.append(next(stream))
    assert responses[0].HasField("completion")
    with pytest.raises(grpc.RpcError) as error:
        server.generate(PROMPT, request_id="twice")
    assert error.value.code() == grpc.StatusCode.ALREADY_EXISTS
    outputs, _ = choices([*responses, *stream])
    assert [len(output.token_ids) for output in outputs] == [1, 400]
    assert len(server.generate(PROMPT, max_tokens=2, ignore_eos=True, request_id="twice").token_ids) == 2


def test_choices_survive_the_verifier(server):
    want, _ = choices(server.start(PROMPT, n=3, seed=11, max_tokens=200, ignore_eos=True))
    stream = server.start(PROMPT, n=3, seed=11, max_tokens=200, ignore_eos=True)
    first = [next(stream) for _ in range(6)]
    os.kill(server.child("tandem-verifier"), signal.SIGKILL)
    outputs, _ = choices([*first, *stream])
    assert [output.bytes for output in outputs] == [output.bytes for output in want]


def test_choices_go_on_while_the_server_drains(servers):
    server = servers(target=harness.TALES_TARGET, drafter="none", max_slots=1)
    stream = server.start(PROMPT, n=3, seed=3, max_tokens=60, ignore_eos=True)
    first = next(stream)
    server.process.send_signal(signal.SIGTERM)
    outputs, _ = choices([first, *stream])
    assert [len(output.token_ids) for output in outputs] == [60] * 3
    began = time.monotonic()
    assert server.process.wait(20) == 0
    assert time.monotonic() - began < 20
