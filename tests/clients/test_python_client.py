"""Tests `Client` and `AsyncClient` beside the raw stubs."""

import asyncio
import gc
import re
import threading
import time

import grpc
import pytest
from openai.types.chat import ChatCompletionMessage

import harness
from scripted_server import Answer
from tandem.v1 import generate_pb2 as pb
from tandem_client import (AsyncClient, CanceledError, Client, DeadlineExceededError, FinishReason, InvalidArgumentError, NotFoundError,
                           Source, proto)
from tandem_client.request import parameters

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

USER = {"role": "user", "content": "a"}
TEXT = {"type": "text", "text": "one"}


def calling(**call):
    return {"messages": [{"role": "assistant", "tool_calls": [call]}]}


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


def test_messages_of_openai_arrive():
    nothing = {"refusal": None, "audio": None, "function_call": None, "annotations": None}  # by model_dump()
    request = parameters.make_request(None, [
        {"role": "user", "content": [TEXT, {"type": "text", "text": "two"}], "name": None},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "get", "arguments": "{}"}}], **nothing},
        {"role": "tool", "content": (TEXT,), "tool_call_id": "1", "tool_calls": None},
        ChatCompletionMessage(role="assistant", content="Rain.").model_dump(),
    ], {})
    assert request.chat == proto.Chat(messages=[
        proto.ChatMessage(role="user", content="one\ntwo"),
        proto.ChatMessage(role="assistant", tool_calls=[proto.ToolCall(id="1", name="get", arguments="{}")]),
        proto.ChatMessage(role="tool", content="one", tool_call_id="1"),
        proto.ChatMessage(role="assistant", content="Rain.")])


def test_a_chat_is_what_its_template_makes_of_it(server, client):
    messages = [{"role": "system", "content": "You tell tales."}, {"role": "user", "content": "Once upon a time"}]
    assert client.server_info().chat_template
    rendered = client.render_chat(messages)
    assert "Once upon a time" in rendered.prompt and rendered.token_ids == client.tokenize(rendered.prompt, add_special_tokens=False)
    assert client.render_chat([{**one, "content": [{"type": "text", "text": one["content"]}]} for one in messages]) == rendered
    want = client.complete(rendered.token_ids, seed=1, max_tokens=20)
    assert client.complete(messages=messages, seed=1, max_tokens=20).token_ids == want.token_ids
    assert client.map([messages], seed=1, max_tokens=20)[0].token_ids == want.token_ids

    async def chat(client):
        return (await client.render_chat(messages)), (await client.complete(messages=messages, seed=1, max_tokens=20))

    its, done = in_loop(server.address, chat)
    assert its == rendered and done.token_ids == want.token_ids


@pytest.mark.parametrize("arguments,options,message", [
    ((), {}, "a request has a prompt or messages, and this one has neither"),
    (("a",), dict(messages=[]), "a prompt or messages, and not both"),
    (([USER],), {}, "prompt: got messages, allowed: a text, or a list of token ids. Pass a conversation as messages="),
    ((USER,), {}, "Pass a conversation as messages="),
    ((5,), {}, "prompt: got 5, allowed: a text, or a list of token ids"),
    ((["a", "b"],), {}, "prompt[0]: got 'a', allowed: a token id, which is a whole number; map() takes several prompts"),
    (([1, 2**31],), {}, "prompt[1]: got 2147483648, allowed: a token id"),
    (("\ud800",), {}, "prompt: got '\\ud800', allowed: a text that UTF-8 can encode"),
    (("a",), dict(max_token=3), "did you mean 'max_tokens'"),
    (("a",), dict(max_completion_tokens=9), "there is no option 'max_completion_tokens'; did you mean 'max_tokens'?"),
    (("a",), dict(enabled=False), "there is no option 'enabled'; did you mean 'speculate'?"),
    (("a",), dict(stream=True), "there is no option 'stream'; generate() streams"),
    (("a",), dict(temperature="hot"), "temperature: got 'hot', allowed: a number"),
    (("a",), dict(temperature=True), "temperature: got True, allowed: a number"),
    (("a",), dict(max_tokens=1.5), "max_tokens: got 1.5, allowed: a whole number"),
    (("a",), dict(max_tokens=2**40), f"max_tokens: got {2**40}, allowed: a whole number from -2147483648 to 2147483647"),
    (("a",), dict(seed=-1), "seed: got -1, allowed: a whole number from 0 to 18446744073709551615"),
    (("a",), dict(ignore_eos="no"), "ignore_eos: got 'no', allowed: True or False"),
    (("a",), dict(speculate=0.5), "speculate: got 0.5, allowed: True or False"),
    (("a",), dict(token_texts="yes"), "token_texts: got 'yes', allowed: True or False"),
    (("a",), dict(stop=5), "stop: got 5, allowed: a text, or a list of texts"),
    (("a",), dict(stop=["a", 5]), "stop[1]: got 5, allowed: a text"),
    (("a",), dict(stop_token_ids=5), "stop_token_ids: got 5, allowed: a list of token ids"),
    (("a",), dict(stop_token_ids=[1, "b"]), "stop_token_ids[1]: got 'b', allowed: a token id"),
    (("a",), dict(logit_bias={"wolf": 1}), "logit_bias: got the key 'wolf', allowed: a token id"),
    (("a",), dict(logit_bias={656: "x"}), "logit_bias[656]: got 'x', allowed: a number"),
    (("a",), dict(logit_bias=[656]), "logit_bias: got [656], allowed: a dict"),
    (("a",), dict(draft_sampling={"temp": 1}), "draft_sampling: there is no key 'temp', allowed: temperature, top_k, top_p"),
    (("a",), dict(draft_sampling={"top_k": "x"}), "draft_sampling.top_k: got 'x', allowed: a whole number"),
    (("a",), dict(prediction=5), "prediction: got 5, allowed: a text, or a list of token ids"),
    (("a",), dict(timeout="soon"), "timeout: got 'soon', allowed: a number of seconds"),
    (("a",), dict(tenant=5), "tenant: got 5, allowed: a text"),
    (("a",), dict(model=5), "model: got 5, allowed: a text"),
    (("a",), dict(tools=[{}]), "tools belongs to messages"),
    ((), dict(messages=[USER], tools=5), "tools: got 5, allowed: a list of tools"),
    ((), dict(messages=[USER], tools=[{1, 2}]), "tools: got [{1, 2}], allowed: what JSON can express"),
    ((), dict(messages=[USER], template_kwargs=[]), "template_kwargs: got [], allowed: a dict"),
    ((), dict(messages="Hello"), "messages: got 'Hello', allowed: a list such as"),
    ((), dict(messages=[USER, "Hello"]), "messages[1]: got 'Hello', allowed: a dict with a role and a content"),
    ((), dict(messages=[{"content": "a"}]), "messages[0].role: got None, allowed: system, user, assistant, tool, or another role"),
    ((), dict(messages=[USER, {"role": "user", "text": "a"}]), "messages[1]: there is no key 'text' (its value is 'a'), allowed: role"),
    ((), dict(messages=[{"role": "user", "content": 5}]), "messages[0].content: got 5, allowed: a text, or a list of text parts"),
    ((), dict(messages=[{"role": "user", "content": [TEXT, {"type": "image_url", "image_url": {"url": "x"}}]}]),
     "messages[0].content[1]: got a part of type 'image_url', allowed: {\"type\": \"text\""),
    ((), dict(messages=[{"role": "user", "content": ["a"]}]), "messages[0].content[0]: got 'a', allowed: {\"type\": \"text\""),
    ((), dict(messages=[{"role": "user", "content": [{"type": "text"}]}]), "messages[0].content[0].text: got None, allowed: a text"),
    ((), dict(messages=[{"role": "user", "name": 5}]), "messages[0].name: got 5, allowed: a text"),
    ((), dict(messages=[{"role": "assistant", "tool_calls": {}}]), "messages[0].tool_calls: got {}, allowed: a list of calls"),
    ((), dict(messages=[{"role": "assistant", "tool_calls": [5]}]), "messages[0].tool_calls[0]: got 5, allowed: a dict such as"),
    ((), calling(type="custom"), "messages[0].tool_calls[0].type: got 'custom', allowed: 'function'"),
    ((), calling(function=5), "messages[0].tool_calls[0].function: got 5, allowed: a dict"),
    ((), calling(function={}), "messages[0].tool_calls[0].function.name: got None, allowed: the name of a function"),
    ((), calling(name="get", arguments=5), "messages[0].tool_calls[0].arguments: got 5, allowed: an object, or its JSON"),
])
def test_arguments_that_do_not_fit_are_refused_before_a_call(arguments, options, message):
    with Client("127.0.0.1:1") as client, pytest.raises((TypeError, ValueError), match=re.escape(message)) as error:
        client.generate(*arguments, **options)
    assert len(str(error.value)) < 300


def test_keys_of_a_bias_may_be_texts_as_in_json():
    request = parameters.make_request("a", None, {"logit_bias": {"656": 1, 7: -2}})
    assert dict(request.sampling_params.logit_bias) == {656: 1.0, 7: -2.0}


def test_the_small_calls_refuse_other_types():
    with Client("127.0.0.1:1") as client:
        for call, message in ((lambda: client.tokenize(5), "text: got 5, allowed: a text"),
                              (lambda: client.detokenize("a"), "token_ids: got 'a', allowed: a list of token ids"),
                              (lambda: client.render_chat("a"), "messages: got 'a', allowed: a list"),
                              (lambda: client.map([5]), "prompt: got 5, allowed: a text")):
            with pytest.raises(TypeError, match=re.escape(message)):
                call()


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
