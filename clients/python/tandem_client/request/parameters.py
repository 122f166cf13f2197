"""The options of a request as keyword arguments, and the messages that they become."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Union

from .. import proto
from .chat import Messages, make_chat
from .fields import extend, set_field, wrong

Prompt = Union[str, Sequence[int]]
"""A text, or token ids that are used unchanged."""


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


_HINTS = {
    "enabled": "did you mean 'speculate'?",
    "max_completion_tokens": "did you mean 'max_tokens'?",
    "max_new_tokens": "did you mean 'max_tokens'?",
    "stream": "generate() streams, and complete() does not",
}
_TOKEN_ID = "a token id, which is a whole number"


def check_options(options: Mapping[str, object]) -> None:
    """Raises TypeError for a name that is no option, and for a wrong type of an option that is not in the message."""
    for name in options:
        if name not in Options.__annotations__:
            close = difflib.get_close_matches(name, Options.__annotations__, 1)
            hint = _HINTS.get(name) or (f"did you mean {close[0]!r}?" if close else "")
            raise TypeError(f"there is no option {name!r}" + (f"; {hint}" if hint else ""))
    timeout, token_texts = options.get("timeout"), options.get("token_texts")
    if timeout is not None and (isinstance(timeout, bool) or not hasattr(timeout, "__float__")):
        raise wrong("timeout", timeout, "a number of seconds")
    if token_texts is not None and not isinstance(token_texts, bool):
        raise wrong("token_texts", token_texts, "True or False")
    for name in ("tenant", "traceparent"):
        if options.get(name) is not None and not isinstance(options[name], str):
            raise wrong(name, options[name], "a text")


def _fill(message: Any, names: Sequence[str], options: Mapping[str, Any]) -> None:
    for name in names:
        value = options.get(name)
        if value is None:
            continue
        if name == "logit_bias":
            _set_logit_bias(message.logit_bias, value)
        elif name == "prediction":
            message.prediction.CopyFrom(_prediction(value))
        elif name == "draft_sampling":
            message.draft_sampling.CopyFrom(_draft_sampling(value))
        elif name == "stop":
            extend(message.stop, name, [value] if isinstance(value, str) else value, "a text, or a list of texts", "a text")
        elif name == "stop_token_ids":
            extend(message.stop_token_ids, name, value, "a list of token ids", _TOKEN_ID)
        else:
            set_field(message, _RENAMED.get(name, name), name, value)


def _set_logit_bias(field: Any, value: Any) -> None:
    if not isinstance(value, Mapping):
        raise wrong("logit_bias", value, "a dict with a number for each token id")
    for key, bias in value.items():
        token_id = int(key) if isinstance(key, str) and re.fullmatch(r"-?[0-9]{1,10}", key) else key  # JSON has such keys
        try:
            field[token_id] = 0.0
        except (TypeError, ValueError):
            raise TypeError(f"logit_bias: got the key {key!r}, allowed: {_TOKEN_ID}") from None
        if isinstance(bias, bool):
            raise wrong(f"logit_bias[{token_id}]", bias, "a number")
        try:
            field[token_id] = bias
        except (TypeError, ValueError):
            raise wrong(f"logit_bias[{token_id}]", bias, "a number") from None


def _draft_sampling(value: Any) -> proto.DraftSampling:
    made = proto.DraftSampling()
    allowed = ", ".join(DraftSampling.__annotations__)
    if not isinstance(value, Mapping):
        raise wrong("draft_sampling", value, f"a dict with {allowed}")
    for key, one in value.items():
        if key not in DraftSampling.__annotations__:
            raise TypeError(f"draft_sampling: there is no key {key!r}, allowed: {allowed}")
        if one is not None:
            set_field(made, key, f"draft_sampling.{key}", one)
    return made


def _prediction(value: Prompt) -> proto.Prediction:
    made = proto.Prediction()
    if isinstance(value, str):
        set_field(made, "text", "prediction", value)
    else:
        made.token_ids.SetInParent()
        extend(made.token_ids.ids, "prediction", value, "a text, or a list of token ids", _TOKEN_ID)
    return made


def _set_prompt(request: proto.GenerateRequest, prompt: Prompt) -> None:
    if isinstance(prompt, str):
        set_field(request, "prompt", "prompt", prompt)
        return
    if isinstance(prompt, Mapping) or input_of(prompt)[1] is not None:
        raise TypeError("prompt: got messages, allowed: a text, or a list of token ids. Pass a conversation as messages=[…]")
    request.prompt_token_ids.SetInParent()
    extend(request.prompt_token_ids.ids, "prompt", prompt, "a text, or a list of token ids",
           f"{_TOKEN_ID}; map() takes several prompts")


def make_request(prompt: Prompt | None, messages: Messages | None, options: Mapping[str, Any]) -> proto.GenerateRequest:
    """Raises TypeError or ValueError for arguments that do not fit the message. The server checks the ranges of the others."""
    check_options(options)
    if prompt is None and messages is None:
        raise TypeError("a request has a prompt or messages, and this one has neither")
    if prompt is not None and messages is not None:
        raise TypeError("a request has a prompt or messages, and not both")
    request = proto.GenerateRequest()
    if messages is not None:
        request.chat.CopyFrom(make_chat(messages, options))
    elif prompt is not None:
        for name in ("tools", "template_kwargs", "add_generation_prompt"):
            if options.get(name) is not None:
                raise TypeError(f"{name} belongs to messages, and not to a prompt")
        _set_prompt(request, prompt)
    _fill(request, ("request_id", "model", "add_special_tokens"), options)
    _fill(request.sampling_params, _SAMPLING, options)
    _fill(request.speculation, _SPECULATION, options)
    if options.get("token_texts"):
        request.sampling_params.logprobs_with_text = True
        if not request.sampling_params.HasField("logprobs"):
            request.sampling_params.logprobs = 0
    return request


def make_tokenize_request(text: str | None, messages: Messages | None, options: Mapping[str, Any]) -> proto.TokenizeRequest:
    request = proto.TokenizeRequest()
    if messages is not None:
        request.chat.CopyFrom(make_chat(messages, options))
    else:
        set_field(request, "text", "text", text)
    _fill(request, ("add_special_tokens",), options)
    return request


def make_detokenize_request(token_ids: Sequence[int], skip_special_tokens: bool | None) -> proto.DetokenizeRequest:
    request = proto.DetokenizeRequest()
    extend(request.ids, "token_ids", token_ids, "a list of token ids", _TOKEN_ID)
    _fill(request, ("skip_special_tokens",), {"skip_special_tokens": skip_special_tokens})
    return request


def input_of(item: Prompt | Messages) -> tuple[Prompt | None, Messages | None]:
    """Returns (prompt, None) or (None, messages) for an item of a batch."""
    if isinstance(item, Sequence) and not isinstance(item, str) and len(item) > 0 and isinstance(item[0], Mapping):
        return None, item  # type: ignore[return-value]  # the first element says which of the two it is
    return item, None  # type: ignore[return-value]
