"""Tests `Client` and `AsyncClient` beside the raw stubs."""

import asyncio
import gc
import threading
import time

import grpc
import pytest

import harness
from scripted_server import Answer
from tandem.v1 import generate_pb2 as pb
from tandem_client import (AsyncClient, CanceledError, Client, DeadlineExceededError, FinishReason, InvalidArgumentError, NotFoundError,
                           Source, parameters, proto)

PROMPT = "Once upon a time there was a king who"
LONG = dict(temperature=0, max_tokens=900, ignore_eos=True)
OPTIONS = {
    "greedy": dict(temperature=0.0, seed=1, max_tokens=40),
    "seeded": dict(seed=9, max_tokens=40, top_k=20, top_p=0.9, min_p=0.01, logprobs=2),
    "penalties": dict(seed=4, max_tokens=30, repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.25,
                      logit_bias={300: 2.0}, min_tokens=5),
    "stops": dict(temperature=0.0, seed=1, max_tokens=60, stop=["and", "the"], include_stop_str_in_output=True, stop_token_ids=[17]),
    "choices": dict(seed=2, n=3, max_tokens=20, logprobs=1, logprobs_with_text=True),
    "drafts": dict(seed=3, max_tokens=30, draft_length=3, drafter="model", reproducible=True, max_tree_nodes=0),
    "ids": dict(temperature=0.0, seed=1, max_tokens=20, ignore_eos=True),
}


def prompt_of(name):
    return [harness.BEGIN_OF_TEXT, 300, 301, 302] if name == "ids" else PROMPT


def in_loop(address, body, **options):
    """Runs `await body(client)` in a new event loop."""
    async def main():
        async with AsyncClient(address, timeout=60, **options) as client:
            return await body(client)

    return asyncio.run(main())


def raw(server, name):
    """Returns what the stubs answer, by choice: [(ids, text, sources, logprobs, completion)]."""
    choices = {}
    for response in server.start(prompt_of(name), **OPTIONS[name]):
        one = choices.setdefault(response.index, [[], "", [], [], None])
        one[0].extend(response.token_ids)
        one[1] += response.text
        one[2].extend(response.sources)
        one[3].extend(response.logprobs)
        one[4] = response.completion if response.HasField("completion") else None
    return [choices[index] for index in sorted(choices)]


def assert_same(completion, want):
    assert len(completion.choices) == len(want)
    assert (completion.text, completion.seed) == (completion.choices[0].text, completion.choices[0].seed)
    for choice, (ids, text, sources, logprobs, end) in zip(completion.choices, want):
        assert (choice.token_ids, choice.text) == (ids, text)
        assert len(choice.sources) == len(sources)  # which they are depends on the draft lengths that the server chose
        assert choice.logprobs == ([one.logprob for one in logprobs] or [None] * len(ids))
        assert [top.token_id for token in choice.tokens for top in token.top] == [top.token_id for one in logprobs for top in one.top]
        assert (choice.seed, choice.lossless, choice.usage.completion_tokens) == (end.seed, True, len(ids))
        assert choice.finish_reason.name == pb.FinishReason.Name(end.finish_reason).removeprefix("FINISH_REASON_")
        which = end.WhichOneof("stop_reason")
        assert choice.stop == (which and getattr(end, which))
        assert choice.speculation.reproducible == end.speculation.reproducible


@pytest.mark.parametrize("name", OPTIONS)
def test_both_clients_give_what_the_stubs_give(server, client, name):
    want = raw(server, name)
    assert_same(client.complete(prompt_of(name), **OPTIONS[name]), want)
    stream = client.generate(prompt_of(name), **OPTIONS[name])
    parts = list(stream)
    assert_same(stream.result(), want)
    for choice in stream.result().choices:
        mine = [part for part in parts if part.index == choice.index]
        assert "".join(part.text for part in mine) == choice.text
        assert [token for part in mine for token in part.tokens] == list(choice.tokens)
        assert [part.choice for part in mine] == [None] * (len(mine) - 1) + [choice]

    async def both(client):
        stream = client.generate(prompt_of(name), **OPTIONS[name])
        texts = [part.text async for part in stream if part.index == 0]
        return "".join(texts), await stream.result(), await client.complete(prompt_of(name), **OPTIONS[name])

    text, streamed, completed = in_loop(server.address, both)
    assert_same(streamed, want)
    assert_same(completed, want)
    assert text == streamed.text


def test_the_numbers_of_a_completion_agree(client):
    done = client.complete(PROMPT, temperature=0, max_tokens=60, draft_length=4, ignore_eos=True)
    stats = done.speculation
    assert done.finish_reason is FinishReason.LENGTH and done.stop is None and done.warnings == ()
    assert stats.num_accepted_tokens == done.sources.count(Source.ACCEPTED) > 0
    assert stats.num_plain_rounds == done.sources.count(Source.PLAIN)
    assert stats.acceptance_rate == pytest.approx(stats.num_accepted_tokens / stats.num_draft_tokens)
    assert sum(stats.num_accepted_tokens_per_position) == stats.num_accepted_tokens
    assert stats.drafters[0].num_accepted_tokens == stats.num_accepted_tokens
    assert done.usage.prompt_tokens == len(client.tokenize(PROMPT)) and done.timings.decode_seconds > 0
    assert done.tokens_per_second > 0


def test_log_probabilities_of_the_prompt_come_before_the_tokens(server, client):
    ids = client.tokenize(PROMPT)
    options = dict(prompt_logprobs=2, logprobs_with_text=True, seed=1)
    stream = client.generate(PROMPT, max_tokens=3, n=2, **options)
    parts = list(stream)
    done = stream.result()
    assert sum((part.prompt_logprobs for part in parts), ()) == done.prompt_logprobs and done.choices[1].prompt_logprobs == ()
    first_token = next(number for number, part in enumerate(parts) if part.tokens)
    assert not any(part.prompt_logprobs for part in parts[first_token + 1:])
    assert "".join(entry.text for entry in done.prompt_logprobs) == PROMPT and len(done.prompt_logprobs) == len(ids) - 1
    assert all(len(entry.top) >= 2 and entry.logprob <= entry.top[0].logprob for entry in done.prompt_logprobs)
    scored = client.complete(PROMPT, max_tokens=0, **options)
    assert scored.prompt_logprobs == done.prompt_logprobs and scored.tokens == () and scored.text == ""
    assert in_loop(server.address, lambda client: client.complete(PROMPT, max_tokens=0, **options)).prompt_logprobs == done.prompt_logprobs


def test_every_option_arrives(scripted):
    options = dict(
        temperature=0.5, top_p=0.5, top_k=3, min_p=0.5, repetition_penalty=1.5, presence_penalty=0.5, frequency_penalty=0.25,
        logit_bias={1: 2.0}, seed=2**64 - 1, max_tokens=7, min_tokens=2, stop=["a", "b"], stop_token_ids=[3], ignore_eos=True,
        include_stop_str_in_output=True, skip_special_tokens=False, logprobs=2, logprobs_with_text=True, prompt_logprobs=1, n=2,
        speculate=False, draft_length=2, drafter="suffix", reproducible=False, lenience=0.5, prediction=[1, 2], max_tree_nodes=4,
        draft_sampling={"temperature": 0.0, "top_k": 2}, request_id="mine", model="tales", add_special_tokens=False)
    here = scripted(*[Answer()] * 2)
    with Client(here.address) as client:
        client.complete(PROMPT, **options)
        client.complete([1, 2], stop="x", prediction="y", tenant="t", traceparent="00-1")
    mine = {**options, "enabled": False, "prediction": pb.Prediction(token_ids=pb.TokenIds(ids=[1, 2]))}
    del mine["speculate"]
    assert here.requests[0] == harness.request(PROMPT, **mine)
    assert here.requests[1] == harness.request([1, 2], stop=["x"], prediction=pb.Prediction(text="y"))
    assert here.metadata[1]["tandem-tenant"] == "t" and here.metadata[1]["traceparent"] == "00-1"
    assert here.metadata[0]["user-agent"].startswith("tandem-client-python/")


def test_a_conversation_arrives():
    request = parameters.make_request(None, [
        {"role": "user", "content": "Weather?", "name": "me"},
        {"role": "assistant", "reasoning": "Ask.", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "get", "arguments": '{"a": 1}'}},
            {"id": "2", "name": "get", "arguments": {"b": "ü"}}]},
        {"role": "tool", "content": "Rain.", "tool_call_id": "1"},
    ], {"tools": [{"type": "function"}], "template_kwargs": {"enable_thinking": False}, "add_generation_prompt": False})
    call = proto.ToolCall
    assert request.chat == proto.Chat(
        messages=[proto.ChatMessage(role="user", content="Weather?", name="me"),
                  proto.ChatMessage(role="assistant", reasoning="Ask.",
                                    tool_calls=[call(id="1", name="get", arguments='{"a": 1}'),
                                                call(id="2", name="get", arguments='{"b": "ü"}')]),
                  proto.ChatMessage(role="tool", content="Rain.", tool_call_id="1")],
        tools_json='[{"type": "function"}]', template_kwargs_json='{"enable_thinking": false}', add_generation_prompt=False)
    assert request.WhichOneof("input") == "chat" and not request.chat.messages[1].HasField("content")


def test_a_chat_is_what_its_template_makes_of_it(server, client):
    messages = [{"role": "system", "content": "You tell tales."}, {"role": "user", "content": "Once upon a time"}]
    assert client.server_info().chat_template
    rendered = client.render_chat(messages)
    assert "Once upon a time" in rendered.prompt and rendered.token_ids == client.tokenize(rendered.prompt, add_special_tokens=False)
    want = client.complete(rendered.token_ids, seed=1, max_tokens=20)
    assert client.complete(messages=messages, seed=1, max_tokens=20).token_ids == want.token_ids
    assert client.map([messages], seed=1, max_tokens=20)[0].token_ids == want.token_ids

    async def chat(client):
        return (await client.render_chat(messages)), (await client.complete(messages=messages, seed=1, max_tokens=20))

    its, done = in_loop(server.address, chat)
    assert its == rendered and done.token_ids == want.token_ids


@pytest.mark.parametrize("arguments,options,message", [
    ((), {}, "a prompt or messages"),
    (("a",), dict(messages=[]), "a prompt or messages"),
    (("a",), dict(max_token=3), "did you mean 'max_tokens'"),
    (("a",), dict(tools=[{}]), "tools belongs to messages"),
    ((), dict(messages=[{"content": "a"}]), "a message has a role"),
    ((), dict(messages=[{"role": "user", "text": "a"}]), "and not 'text'"),
])
def test_arguments_that_do_not_fit_are_refused_before_a_call(arguments, options, message):
    with Client("127.0.0.1:1") as client, pytest.raises(TypeError, match=message):
        client.generate(*arguments, **options)


def test_the_small_calls(server, client):
    ids = client.tokenize(PROMPT)
    assert ids[0] == harness.BEGIN_OF_TEXT and client.tokenize(PROMPT, add_special_tokens=False) == ids[1:]
    assert client.detokenize(ids) == PROMPT and client.detokenize(ids, skip_special_tokens=False) != PROMPT
    info = client.server_info()
    assert (info.model, info.max_slots, info.drafters) == ((want := server.info()).model, want.max_slots, tuple(want.drafters))
    assert info.load.num_finished >= 0 and info.load.audit.drafters == () and len(info.draft_models) == len(want.draft_models)

    async def small(client):
        return await client.tokenize(PROMPT), await client.detokenize(ids), (await client.server_info()).model

    assert in_loop(server.address, small) == (ids, PROMPT, info.model)


# ---------------------------------------------------------------- the end of a stream


def wait_until_idle(client):
    harness.wait_until(lambda: client.server_info().load.num_running == 0, 5, "the slot is free")


def test_whoever_gives_a_stream_up_frees_its_slot(servers):
    server = servers(environment=harness.PATIENT, max_slots=1)
    with Client(server.address, timeout=60) as client:
        for part in client.generate(PROMPT, **LONG):
            if part.tokens:
                break  # the loop had the only reference
        gc.collect()
        wait_until_idle(client)
        with client.generate(PROMPT, **LONG) as stream:
            next(stream)
        with pytest.raises(CanceledError) as error:
            stream.result()
        assert 0 < len(error.value.outputs[0].tokens) < 900
        wait_until_idle(client)

        stream = client.generate(PROMPT, **LONG)
        next(stream)
        threading.Timer(0.05, stream.close).start()
        with pytest.raises(CanceledError):
            stream.result()
        wait_until_idle(client)

        with pytest.raises(DeadlineExceededError) as error:
            client.complete(PROMPT, timeout=0.15, **LONG)
        assert isinstance(error.value, TimeoutError)
        wait_until_idle(client)

        async def leave(client):
            task = asyncio.ensure_future(client.complete(PROMPT, **LONG))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            stream = client.generate(PROMPT, **LONG)
            await stream.__anext__()
            asyncio.get_running_loop().call_later(0.02, stream.cancel)
            with pytest.raises(CanceledError):
                await stream.result()
            async for _ in client.generate(PROMPT, **LONG):
                break
            gc.collect()

        in_loop(server.address, leave)
        wait_until_idle(client)
        assert client.complete(PROMPT, temperature=0, max_tokens=2).usage.completion_tokens == 2


def test_a_signal_cancels_the_request(scripted):
    here = scripted(Answer(tokens=1, hangs=True))

    with Client(here.address) as client:
        stream = client.generate(PROMPT)
        next(stream)
        call = stream._call

        class Signaled:
            def __next__(self):
                raise KeyboardInterrupt

            def cancel(self):
                call.cancel()

        stream._call = Signaled()
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        assert here.canceled.wait(5)


def test_an_ended_stream_stays_ended(client):
    stream = client.generate(PROMPT, temperature=0, max_tokens=3)
    done = stream.result()
    assert list(stream) == [] and stream.result() == done
    stream.close()
    assert stream.result() == done and stream.attempts == 1


def test_a_failed_stream_fails_again(client):
    stream = client.generate(PROMPT, temperature=-1)
    for _ in range(2):
        with pytest.raises(InvalidArgumentError, match="temperature"):
            next(stream)


# ---------------------------------------------------------------- batches

PROMPTS = [f"There was once a {animal} who" for animal in ("king", "wolf", "miller", "fox", "bear", "mouse")]


def test_a_batch_has_the_results_in_order(server, client):
    want = [client.complete(prompt, temperature=0, max_tokens=20).text for prompt in PROMPTS]
    states = []
    got = client.map(PROMPTS, concurrency=3, progress=states.append, temperature=0, max_tokens=20, draft_length=3)
    assert [done.text for done in got] == want
    last = states[-1]
    assert (last.finished, last.failed, last.total, last.is_last) == (len(PROMPTS), 0, len(PROMPTS), True)
    assert last.tokens == sum(len(done.tokens) for done in got) and last.tokens_per_second > 0
    accepted = sum(done.sources.count(Source.ACCEPTED) for done in got)
    recovered = sum(done.sources.count(Source.RECOVERED) for done in got)
    assert last.acceptance == accepted / (accepted + recovered)
    assert [state.finished for state in states] == sorted(state.finished for state in states)
    assert client.map([]) == []

    async def batch(client):
        assert await client.map([]) == []
        return await client.map(PROMPTS, concurrency=3, progress=states.append, temperature=0, max_tokens=20)

    assert [done.text for done in in_loop(server.address, batch)] == want and states[-1].is_last


def test_a_batch_raises_its_first_error_and_cancels_the_rest(server, client):
    bad = ["one", [10**6], *PROMPTS]  # no such token

    def at_once(call):
        began = time.monotonic()
        with pytest.raises(InvalidArgumentError, match="1000000"):
            call()
        assert time.monotonic() - began < 10
        wait_until_idle(client)

    at_once(lambda: client.map(bad, concurrency=2, **LONG))
    at_once(lambda: in_loop(server.address, lambda client: client.map(bad, concurrency=2, **LONG)))
    states = []
    options = dict(concurrency=2, return_errors=True, progress=states.append, temperature=0, max_tokens=5)
    for got in (client.map(bad, **options), in_loop(server.address, lambda client: client.map(bad, **options))):
        assert [isinstance(one, InvalidArgumentError) for one in got] == [False, True] + [False] * len(PROMPTS)
        assert (states[-1].finished, states[-1].failed) == (len(bad) - 1, 1)
    with pytest.raises(TypeError, match="request_id"):
        client.map(PROMPTS, request_id="one")


def test_a_model_that_is_not_served_is_not_found(client):
    with pytest.raises(NotFoundError) as error:
        client.complete(PROMPT, model="other")
    assert error.value.code is grpc.StatusCode.NOT_FOUND and error.value.emitted_tokens == 0 and error.value.retry_after is None
