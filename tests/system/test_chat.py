"""Tests chats over gRPC and over OpenAI's API, with a model that says scripted texts, and with a small trained one.

The clients are the stubs of the proto, the `openai` packages of PyPI and npm, and LangChain.
"""

import json
import os
import pathlib
import subprocess

import grpc
import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI

import harness
import scripted_model
from tandem.v1 import generate_pb2 as pb

CLIENTS = pathlib.Path(__file__).parent / "openai_clients"

# A conversation ends with a token that decides what the model says.
TEMPLATE = """{#- Calls are written as <tool_call>. -#}
{{- bos_token }}
{%- for m in messages %}{{ m.role }}: {{ m.content or '' }}
{%- for call in m.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}{{ '\\n' }}
{%- endfor %}
{%- if mood is defined %}{{ mood }}{% endif %}{% if tools %}{{ tools | tojson }}{% endif %}
{%- if messages[0].role == 'critic' %}{{ raise_exception('critics are not welcome') }}{% endif %}
{%- if messages[-1].role == 'tool' %}<|report|>{% elif tools %}<|call|>{% else %}<|greet|>{% endif %}"""
TEXTS = {
    "<|greet|>": ["Hello", ",", " dear", " friend", "!"],
    "<|call|>": ["Let me see.", "\n", "<tool_call>", '\n{"name": "weather"', ', "arguments": {"city": "Pa', 'ris", "days"', ": 2}}\n",
                 "</tool_call>"],
    "<|report|>": ["It is", " sunny", " in Paris."],
}
GREETING, REPORT = "Hello, dear friend!", "It is sunny in Paris."
CALLS = "".join(TEXTS["<|call|>"])
WEATHER = {"type": "function", "function": {"name": "weather", "description": "tells the weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}
HI = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def server(servers, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scripted") / "scripted"
    scripted_model.write(folder, TEXTS, TEMPLATE)
    return servers(target=folder)


@pytest.fixture(scope="module")
def gateway(server, gateways):
    return gateways(server.address)


@pytest.fixture(scope="module")
def client(gateway):
    with openai.OpenAI(base_url=gateway.url + "/v1", api_key="none", max_retries=0) as one:
        yield one


def chat(messages, **fields):
    made = pb.Chat(**fields)
    for message in messages:
        made.messages.add(**message)
    return made


def generate(server, made, **options):
    request = harness.request(None, **options)
    request.chat.CopyFrom(made)
    return harness.Output.read(server.stub.Generate(request, timeout=60))


# ---------------------------------------------------------------- gRPC


def test_a_chat_gives_what_its_rendered_prompt_gives(server):
    messages = [dict(role="system", content="Be kind."), *HI]
    rendered = server.stub.Tokenize(pb.TokenizeRequest(chat=chat(messages)), timeout=30)
    assert rendered.prompt == "<|begin|>system: Be kind.\nuser: Hi\n<|greet|>"
    output = generate(server, chat(messages), temperature=0)
    assert output.text == GREETING and output.completion.finish_reason == pb.FINISH_REASON_STOP
    assert output.completion.usage.prompt_tokens == len(rendered.ids)
    assert output.bytes == server.generate(list(rendered.ids), temperature=0).bytes
    assert output.bytes == server.generate(rendered.prompt, temperature=0, add_special_tokens=False).bytes


def test_the_template_gets_tools_variables_and_calls(server):
    made = chat([*HI, dict(role="assistant", tool_calls=[pb.ToolCall(id="c", name="weather", arguments='{"city": "Paris"}')]),
                 dict(role="tool", tool_call_id="c", content="sun")],
                tools_json=json.dumps([WEATHER]), template_kwargs_json='{"mood": "glad"}')
    prompt = server.stub.Tokenize(pb.TokenizeRequest(chat=made), timeout=30).prompt
    assert '{"name": "weather", "arguments": {"city": "Paris"}}' in prompt
    assert "glad" + json.dumps([WEATHER]) in prompt
    assert generate(server, made, temperature=0).text == REPORT


def test_the_server_says_where_its_template_is_and_how_its_model_writes_calls(server):
    info = server.info()
    assert (info.chat_template, info.chat_template_problem, info.tool_call_format) == ("chat_template.jinja", "", "hermes")


@pytest.mark.parametrize("made, words", [
    (chat([]), "chat.messages: got nothing"),
    (chat([dict(role="", content="a")]), "chat.messages[0].role: got nothing"),
    (chat([dict(role="critic", content="a")]), "critics are not welcome"),
    (chat(HI, tools_json="{"), "chat.tools_json: got no valid JSON"),
    (chat(HI, template_kwargs_json="[" * 100), "at most 64 levels"),
    (chat([dict(role="user", content="a" * 5000)]), "tokens, allowed: at most 4095 tokens"),
])
def test_a_chat_that_cannot_be_a_prompt_is_refused_with_the_reason(server, made, words):
    with pytest.raises(grpc.RpcError) as refused:
        generate(server, made)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT and words in harness.notice(refused.value).details()


def test_a_model_without_a_template_says_so_and_takes_one_from_the_operator(servers, models, tmp_path):
    target = models.tales_sized_draft()
    server = servers(target=target)
    assert "no chat template" in server.info().chat_template_problem
    with pytest.raises(grpc.RpcError) as refused:
        generate(server, chat(HI))
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "chat: got messages, allowed: a prompt, because the model has no chat template" in harness.notice(refused.value).details()
    template = tmp_path / "other.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    other = servers(target=target, chat_template=template)
    made = chat([dict(role="user", content="Once upon a time")])
    assert other.info().chat_template == "other.jinja"
    assert generate(other, made, temperature=0, max_tokens=20).bytes == \
        other.generate("Once upon a time", temperature=0, max_tokens=20, add_special_tokens=False).bytes
    assert generate(other, made, temperature=0, max_tokens=20, add_special_tokens=True).bytes == \
        other.generate("Once upon a time", temperature=0, max_tokens=20).bytes
    # A chat goes on to the end of the context, unless the model ends it.
    assert generate(other, made, temperature=0, ignore_eos=True).completion.usage.completion_tokens > 256
    template.write_text("{% for %}")
    refused = harness.run_cli("serve", "--listen", "127.0.0.1:0", "--chat-template", str(template))
    assert refused.returncode == 1 and "--chat-template" in refused.stderr and "line 1" in refused.stderr


@pytest.mark.parametrize("case", json.loads((harness.SOURCE_DIR / "tests/golden/chat/tales.json").read_text())["cases"],
                         ids=lambda case: case["messages"][-1]["content"][:12])
def test_greedy_answers_are_those_of_transformers(servers, gateways, case):
    """The embedded pair, drafted: over gRPC and over HTTP."""
    server = servers(target=harness.EMBEDDED_TARGET, draft=harness.EMBEDDED_DRAFT)
    made = chat(case["messages"])
    assert list(server.stub.Tokenize(pb.TokenizeRequest(chat=made), timeout=30).ids) == case["prompt_ids"]
    output = generate(server, made, temperature=0, max_tokens=len(case["answer_ids"]))
    assert (output.token_ids, output.text) == (case["answer_ids"], case["text"])
    with openai.OpenAI(base_url=gateways(server.address).url + "/v1", api_key="none", max_retries=0) as one:
        answer = one.chat.completions.create(model="", messages=case["messages"], temperature=0, max_tokens=len(case["answer_ids"]))
    assert answer.choices[0].message.content == case["text"]


# ---------------------------------------------------------------- the openai package of PyPI


def test_openais_client_reads_whole_answers_and_streams(server, client):
    options = dict(model=server.info().model, messages=[{"role": "developer", "content": "Be kind."}, *HI], temperature=0)
    whole = client.chat.completions.create(**options, n=2, logprobs=True, top_logprobs=2)
    want = generate(server, chat([dict(role="system", content="Be kind."), *HI]), temperature=0)
    assert [(choice.index, choice.message.role, choice.message.content, choice.finish_reason) for choice in whole.choices] == \
        [(0, "assistant", want.text, "stop"), (1, "assistant", want.text, "stop")]
    assert "".join(token.token for token in whole.choices[0].logprobs.content[:-1]) == GREETING
    assert [len(token.top_logprobs) for token in whole.choices[0].logprobs.content] == [2] * 6
    assert whole.usage.prompt_tokens == want.completion.usage.prompt_tokens and whole.usage.completion_tokens == 12
    chunks = list(client.chat.completions.create(**options, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices) == want.text
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens == 6
    cut = client.chat.completions.create(**options, max_completion_tokens=2)
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("Hello,", "length")
    assert client.chat.completions.create(**options, stop=" friend").choices[0].message.content == "Hello, dear"


def test_openais_client_reads_calls_of_tools_and_reports_their_results(server, client):
    options = dict(model=server.info().model, tools=[WEATHER], temperature=0)
    answer = client.chat.completions.create(messages=HI, **options).choices[0]
    assert (answer.finish_reason, answer.message.content) == ("tool_calls", "Let me see.")
    call, = answer.message.tool_calls
    assert (call.type, call.function.name, json.loads(call.function.arguments)) == ("function", "weather", {"city": "Paris", "days": 2})
    report = client.chat.completions.create(
        messages=[*HI, answer.message, {"role": "tool", "tool_call_id": call.id, "content": "sun"}], **options).choices[0]
    assert (report.message.content, report.message.tool_calls, report.finish_reason) == (REPORT, None, "stop")
    with client.chat.completions.stream(messages=HI, **options) as stream:
        assert sum(event.type == "tool_calls.function.arguments.delta" for event in stream) > 2
        final = stream.get_final_completion().choices[0]
    assert (final.finish_reason, final.message.content) == ("tool_calls", "Let me see.")
    assert final.message.tool_calls[0].function.arguments == call.function.arguments
    unseen = client.chat.completions.create(messages=HI, tool_choice="none", **options).choices[0]
    assert (unseen.message.content, unseen.finish_reason) == (GREETING, "stop")


def test_calls_of_unknown_formats_stay_text(servers, server, gateways):
    plain = servers(target=server.process.args[server.process.args.index("--target") + 1], tool_call_format="none")
    with openai.OpenAI(base_url=gateways(plain.address).url + "/v1", api_key="none", max_retries=0) as one:
        answer = one.chat.completions.create(model="", messages=HI, tools=[WEATHER], temperature=0).choices[0]
    assert (answer.message.content, answer.message.tool_calls, answer.finish_reason) == (CALLS, None, "stop")


@pytest.mark.parametrize("fields, param", [
    (dict(messages=[]), "messages"),
    (dict(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]), "messages"),
    (dict(messages=HI, tool_choice="required"), "tool_choice"),
    (dict(messages=HI, response_format={"type": "json_object"}), "response_format"),
    (dict(messages=HI, top_logprobs=3), "top_logprobs"),
    (dict(messages=HI, temperature=-1), "temperature"),
    (dict(messages=HI, n=17), "n"),
    (dict(messages=HI, logprobs=True, top_logprobs=21), "top_logprobs"),
    (dict(messages=HI, max_completion_tokens=0), "max_completion_tokens"),
    (dict(messages=HI, tools=[{"type": "function"}]), "tools"),
    (dict(messages=[{"role": "critic", "content": "a"}]), "messages"),
])
def test_openais_client_raises_errors_that_name_the_field(client, fields, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="", **fields)
    assert refused.value.param == param, refused.value


def test_a_chat_that_is_too_long_has_the_code_that_clients_look_for(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model="", messages=[{"role": "user", "content": "a" * 5000}])
    assert refused.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as larger:  # a million characters are more than a prompt may have
        client.chat.completions.create(model="", messages=[{"role": "user", "content": "ab" * (1 << 20) + "c"}])
    assert larger.value.param == "messages"


def test_bodies_that_two_parsers_could_read_differently_do_no_harm(gateway):
    """A byte that ends a C string, and keys with escapes."""
    head = '{"messages":[{"role":"user","content":"Hi"}],"max_tokens":1,'
    for body in ['"tools":[{"type":"function","function":{"name":"f"}}]}\0"',
                 '"reasoning_effort":"low","chat_template_kwargs":{}}\0{"c":@}']:
        assert gateway.call("POST", "/v1/chat/completions", (head + body).encode())[0] == 400
    status, _, answer = gateway.call("POST", "/v1/chat/completions", (
        head + '"chat_template_kwargs":5,"chat_template_kwarg\\u0073":{"mood":"glad"},"reasoning_effort":"low"}').encode())
    assert status == 200, answer
    assert gateway.call("GET", "/health")[0] == 200


def test_a_chat_is_tokenized_as_it_is_generated_from(server, gateway):
    status, _, answer = gateway.call("POST", "/v1/tokenize", dict(messages=HI))
    want = server.stub.Tokenize(pb.TokenizeRequest(chat=chat(HI)), timeout=30)
    assert status == 200 and answer["tokens"] == list(want.ids)


# ---------------------------------------------------------------- other clients


def test_the_npm_package_reads_chats_calls_and_errors(server, gateway):
    subprocess.run([CLIENTS / "install.sh"], check=True, timeout=300)
    model = server.info().model
    done = subprocess.run(["node", CLIENTS / "chat.mjs", gateway.url + "/v1", model], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "OPENAI_CLIENTS": str(harness.SOURCE_DIR / "build" / "openai_clients")})
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout)
    assert got["models"] == [model] and got["texts"] == [GREETING, GREETING] and "".join(got["logprobs"][:-1]) == GREETING
    assert got["usage"]["completion_tokens"] == 12 and got["stream_usage"]["completion_tokens"] == 9
    assert got["parts"] > 3 and got["finish_reason"] == "tool_calls" and got["message"]["content"] == "Let me see."
    assert json.loads(got["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Paris", "days": 2}
    assert got["completion"] == "a<|greet|>Hello,"
    assert got["left"] == "assistant"
    assert got["errors"] == {"NotFoundError": ["NotFoundError", 404, "model"], "BadRequestError": ["BadRequestError", 400, "messages"]}
    harness.wait_until(lambda: server.info().load.num_running == 0, 5, "no request runs")


def test_a_chain_of_langchain_calls_a_tool_and_reads_the_report(server, gateway):
    model = ChatOpenAI(base_url=gateway.url + "/v1", api_key="none", model=server.info().model, temperature=0, max_retries=0)
    chain = ChatPromptTemplate.from_messages([("system", "Be kind."), ("human", "{question}")]) | model
    assert chain.invoke({"question": "Hi"}).content == GREETING
    assert "".join(part.content for part in chain.stream({"question": "Hi"})) == GREETING
    with_tools = model.bind_tools([WEATHER])
    asked = HumanMessage("What is the weather?")
    answer = with_tools.invoke([asked])
    call, = answer.tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Paris", "days": 2})
    report = with_tools.invoke([asked, answer, ToolMessage("sun", tool_call_id=call["id"])])
    assert report.content == REPORT and report.tool_calls == []
