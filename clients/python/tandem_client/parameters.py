"""The options of a request as keyword arguments, and the messages that they become."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

from . import proto

Prompt = Union[str, Sequence[int]]
"""A text, or token ids that are used unchanged."""
Messages = Sequence[Mapping[str, object]]
"""A conversation. `Message` names the keys."""


class Message(TypedDict, total=False):
    """One message of a conversation."""

    role: str
    """"system", "user", "assistant", "tool", or what the model's chat template knows."""
    content: str | None
    """May be missing if there are tool calls."""
    name: str
    """The author."""
    tool_calls: Sequence[Mapping[str, object]]
    """Calls that an assistant made: `{"id", "name", "arguments"}`, or OpenAI's shape with both names in `"function"`. The arguments are
    an object, or its JSON."""
    tool_call_id: str
    """The call that a tool's message answers."""
    reasoning: str
    """What the assistant thought before its content."""


class DraftSampling(TypedDict, total=False):
    """How the draft model draws. What is missing is as in the request."""

    temperature: float
    top_k: int
    top_p: float


class SamplingOptions(TypedDict, total=False):
    """How tokens are chosen: the fields of SamplingParams. None, like an option that is missing, is the server's default."""

    temperature: float | None
    """Default 1. With 0, decoding is greedy."""
    top_p: float | None
    """(0, 1], default 1: keeps the smallest set of most likely tokens that reaches this probability."""
    top_k: int | None
    """Keeps the k most likely tokens. 0 and -1 turn it off, which is the default."""
    min_p: float | None
    """[0, 1], default 0: drops tokens that are less likely than this share of the most likely one."""
    repetition_penalty: float | None
    """> 0, default 1; over prompt and output."""
    presence_penalty: float | None
    """[-2, 2], default 0; over the output."""
    frequency_penalty: float | None
    """[-2, 2], default 0; over the output."""
    logit_bias: Mapping[int, float] | None
    """Token id to what is added to its logit, in [-100, 100]."""
    seed: int | None
    """With a seed, the output depends only on target, prompt, options and seed (see `reproducible`). Otherwise the server draws one and
    reports it."""
    max_tokens: int | None
    """1 or more, default 256; lowered to the room in the context. With `prompt_logprobs` also 0, which draws no token."""
    min_tokens: int | None
    """End of text and stops are held back until then."""
    stop: str | Sequence[str] | None
    """The text is cut before the first match of one of these strings."""
    stop_token_ids: Sequence[int] | None
    """The output ends with the first of these ids."""
    ignore_eos: bool | None
    """Treats end of text like any other token."""
    include_stop_str_in_output: bool | None
    """Leaves the matched stop in the text."""
    skip_special_tokens: bool | None
    """Default true: special tokens give no text."""
    logprobs: int | None
    """0 … 20: reports the target's log-probability of each token, and of this number of most likely tokens."""
    logprobs_with_text: bool | None
    """The log-probabilities have text and bytes too."""
    prompt_logprobs: int | None
    """0 … 20: reports the log-probabilities of the prompt's tokens, and of this number of most likely tokens at each place."""
    n: int | None
    """Number of outputs for the prompt, default 1. Choice i is the output of a request with the seed `seed + i`."""


class SpeculationOptions(TypedDict, total=False):
    """How drafts are made: the fields of SpeculationParams. None of them changes the output, except `lenience` and, where it says so,
    `reproducible`."""

    speculate: bool | None
    """False decodes plainly (`SpeculationParams.enabled`)."""
    draft_length: int | None
    """Number of tokens of each draft. Without it, the server chooses the length that pays."""
    drafter: str | None
    """One of `ServerInfo.drafters`, which alone drafts for this request, or "none"."""
    reproducible: bool | None
    """The output is the same with any drafter, draft length and batch. Default: true if there is a seed."""
    lenience: float | None
    """(0, 1], default 1, which is lossless. Below 1 the distribution of the output may change."""
    prediction: Prompt | None
    """What the output is likely to be. Tokens that agree cost less."""
    max_tree_nodes: int | None
    """Largest number of tokens of a draft that is a tree; 0: all drafts are chains."""
    draft_sampling: DraftSampling | None
    """How the draft model draws."""


class ChatOptions(TypedDict, total=False):
    """What belongs to `messages`."""

    tools: Sequence[Mapping[str, object]] | None
    """The tools that the model may call, in the shape of OpenAI's `tools`."""
    template_kwargs: Mapping[str, object] | None
    """Further variables of the chat template: `{"enable_thinking": False}`."""
    add_generation_prompt: bool | None
    """Whether the prompt ends with the beginning of an answer. Default true."""
    add_special_tokens: bool | None
    """Whether the tokenizer adds the token for the beginning of a text. Default: true for a prompt, false for messages."""


class Options(SamplingOptions, SpeculationOptions, ChatOptions, total=False):
    """Every option of a request."""

    request_id: str | None
    """At most 128 bytes. The server chooses one if there is none."""
    model: str | None
    """The served model, which is the default."""
    token_texts: bool | None
    """Asks for the text of each token, by which displays color the output. This sets `logprobs_with_text`, and `logprobs` to 0 if it is
    not set."""
    timeout: float | None
    """Seconds for the call, retries included. Default: the client's timeout."""
    tenant: str | None
    """Only requests of one tenant share computed prompts. Default: the client's tenant."""
    traceparent: str | None
    """W3C Trace Context, which appears in the server's log lines about this request."""


CALL_OPTIONS = ("timeout", "tenant", "traceparent")
"""Options that are no part of the message."""
_RENAMED = {"speculate": "enabled"}
_SAMPLING = tuple(SamplingOptions.__annotations__)
_SPECULATION = tuple(SpeculationOptions.__annotations__)


def check_names(options: Mapping[str, object]) -> None:
    """Raises TypeError for a name that is no option."""
    for name in options:
        if name not in Options.__annotations__:
            close = difflib.get_close_matches(name, Options.__annotations__, 1)
            raise TypeError(f"there is no option {name!r}" + (f"; did you mean {close[0]!r}?" if close else ""))


def _fill(message: Any, names: Sequence[str], options: Mapping[str, Any]) -> None:
    for name in names:
        value = options.get(name)
        if value is None:
            continue
        field = _RENAMED.get(name, name)
        if name == "logit_bias":
            message.logit_bias.update(value)
        elif name == "prediction":
            message.prediction.CopyFrom(_prediction(value))
        elif name == "draft_sampling":
            message.draft_sampling.CopyFrom(proto.DraftSampling(**value))
        elif name == "stop" and isinstance(value, str):
            message.stop.append(value)
        elif name in ("stop", "stop_token_ids"):
            getattr(message, field).extend(value)
        else:
            setattr(message, field, value)


def _prediction(value: Prompt) -> proto.Prediction:
    return proto.Prediction(text=value) if isinstance(value, str) else proto.Prediction(token_ids=proto.TokenIds(ids=value))


def _json(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _tool_call(call: Mapping[str, Any]) -> proto.ToolCall:
    function = call.get("function", call)
    return proto.ToolCall(id=call.get("id") or "", name=function["name"], arguments=_json(function.get("arguments", {})))


def _message(message: Mapping[str, Any]) -> proto.ChatMessage:
    unknown = set(message) - set(Message.__annotations__)
    if unknown or "role" not in message:
        raise TypeError(f"a message has a role and other keys of Message, and not {', '.join(map(repr, sorted(unknown))) or 'none'}")
    made = proto.ChatMessage(role=message["role"], tool_calls=[_tool_call(call) for call in message.get("tool_calls") or ()])
    for name in ("content", "name", "tool_call_id", "reasoning"):
        value = message.get(name)
        if value is not None:
            setattr(made, name, value)
    return made


def make_chat(messages: Messages, options: Mapping[str, Any]) -> proto.Chat:
    tools, variables = options.get("tools"), options.get("template_kwargs")
    chat = proto.Chat(messages=[_message(message) for message in messages], tools_json=_json(tools) if tools else "",
                      template_kwargs_json=_json(variables) if variables else "")
    if options.get("add_generation_prompt") is not None:
        chat.add_generation_prompt = options["add_generation_prompt"]
    return chat


def make_request(prompt: Prompt | None, messages: Messages | None, options: Mapping[str, Any]) -> proto.GenerateRequest:
    """Raises TypeError for arguments that do not fit together. The server checks all values."""
    check_names(options)
    if (prompt is None) == (messages is None):
        raise TypeError("a request has a prompt or messages, and not both")
    request = proto.GenerateRequest(request_id=options.get("request_id") or "", model=options.get("model") or "")
    if messages is not None:
        request.chat.CopyFrom(make_chat(messages, options))
    else:
        for name in ("tools", "template_kwargs", "add_generation_prompt"):
            if options.get(name) is not None:
                raise TypeError(f"{name} belongs to messages, and not to a prompt")
        if isinstance(prompt, str):
            request.prompt = prompt
        else:
            request.prompt_token_ids.CopyFrom(proto.TokenIds(ids=prompt))
    if options.get("add_special_tokens") is not None:
        request.add_special_tokens = options["add_special_tokens"]
    _fill(request.sampling_params, _SAMPLING, options)
    _fill(request.speculation, _SPECULATION, options)
    if options.get("token_texts"):
        request.sampling_params.logprobs_with_text = True
        if not request.sampling_params.HasField("logprobs"):
            request.sampling_params.logprobs = 0
    return request


def make_tokenize_request(text: str | None, messages: Messages | None, options: Mapping[str, Any]) -> proto.TokenizeRequest:
    request = proto.TokenizeRequest(text=text or "")
    if messages is not None:
        request.chat.CopyFrom(make_chat(messages, options))
    if options.get("add_special_tokens") is not None:
        request.add_special_tokens = options["add_special_tokens"]
    return request


def make_detokenize_request(token_ids: Sequence[int], skip_special_tokens: bool | None) -> proto.DetokenizeRequest:
    request = proto.DetokenizeRequest(ids=token_ids)
    if skip_special_tokens is not None:
        request.skip_special_tokens = skip_special_tokens
    return request


def input_of(item: Prompt | Messages) -> tuple[Prompt | None, Messages | None]:
    """Returns (prompt, None) or (None, messages) for an item of a batch."""
    if not isinstance(item, str) and len(item) > 0 and isinstance(item[0], Mapping):
        return None, item  # type: ignore[return-value]  # the first element says which of the two it is
    return item, None  # type: ignore[return-value]
