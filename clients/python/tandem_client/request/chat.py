"""Conversations as Python has them, and the messages that they become. The shapes are those of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from .. import proto
from .fields import json_text, set_field, wrong

Messages = Sequence[Mapping[str, object]]
"""A conversation. `Message` names the keys."""


class Message(TypedDict, total=False):
    """One message of a conversation. A key whose value is None is as if it were missing, and may then have any name."""

    role: str
    """"system", "user", "assistant", "tool", or what the model's chat template knows."""
    content: str | Sequence[Mapping[str, object]] | None
    """A text, or parts `{"type": "text", "text": "…"}`, which become lines. May be missing if there are tool calls."""
    name: str | None
    """The author."""
    tool_calls: Sequence[Mapping[str, object]] | None
    """Calls that an assistant made: `{"id", "name", "arguments"}`, or OpenAI's shape with both names in `"function"`. The arguments are
    an object, or its JSON."""
    tool_call_id: str | None
    """The call that a tool's message answers."""
    reasoning: str | None
    """What the assistant thought before its content."""


_KEYS = tuple(Message.__annotations__)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _content(place: str, content: Any) -> str:
    if isinstance(content, str):
        return content
    if not _is_list(content):
        raise wrong(place, content, "a text, or a list of text parts")
    for number, part in enumerate(content):
        allowed = '{"type": "text", "text": "…"}'
        if not isinstance(part, Mapping):
            raise wrong(f"{place}[{number}]", part, allowed)
        if part.get("type") not in (None, "text"):
            raise TypeError(f"{place}[{number}]: got a part of type {part['type']!r}, allowed: {allowed}")
        if not isinstance(part.get("text"), str):
            raise wrong(f"{place}[{number}].text", part.get("text"), "a text")
    return "\n".join(part["text"] for part in content)


def _tool_call(place: str, call: Any) -> proto.ToolCall:
    if not isinstance(call, Mapping):
        raise wrong(place, call, 'a dict such as {"id": "…", "type": "function", "function": {"name": "…", "arguments": "…"}}')
    if call.get("type") not in (None, "function"):
        raise wrong(f"{place}.type", call["type"], "'function'")
    function = call.get("function")
    inner = place if function is None else f"{place}.function"
    function = call if function is None else function
    if not isinstance(function, Mapping):
        raise wrong(inner, function, "a dict with a name and arguments")
    if not function.get("name"):
        raise wrong(f"{inner}.name", function.get("name"), "the name of a function")
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, (str, Mapping)):
        raise wrong(f"{inner}.arguments", arguments, "an object, or its JSON")
    made = proto.ToolCall(arguments=json_text(f"{inner}.arguments", {} if arguments is None else arguments))
    set_field(made, "name", f"{inner}.name", function["name"])
    if call.get("id") is not None:
        set_field(made, "id", f"{place}.id", call["id"])
    return made


def _message(place: str, message: Any) -> proto.ChatMessage:
    if not isinstance(message, Mapping):
        raise wrong(place, message, "a dict with a role and a content; model_dump() makes one of an object of openai's package")
    given = {key: value for key, value in message.items() if value is not None}
    for key, value in given.items():
        if key not in _KEYS:
            raise TypeError(f"{place}: there is no key {key!r} (its value is {value!r:.60}), allowed: {', '.join(_KEYS)}")
    if not given.get("role"):
        raise wrong(f"{place}.role", message.get("role"),
                    "system, user, assistant, tool, or another role that the model's chat template knows")
    made = proto.ChatMessage()
    for key, value in given.items():
        inner = f"{place}.{key}"
        if key == "content":
            set_field(made, key, inner, _content(inner, value))
        elif key != "tool_calls":
            set_field(made, key, inner, value)
        elif _is_list(value):
            made.tool_calls.extend(_tool_call(f"{inner}[{number}]", call) for number, call in enumerate(value))
        else:
            raise wrong(inner, value, "a list of calls")
    return made


def make_chat(messages: Messages, options: Mapping[str, Any]) -> proto.Chat:
    if not _is_list(messages):
        raise wrong("messages", messages, 'a list such as [{"role": "user", "content": "…"}]')
    chat = proto.Chat(messages=[_message(f"messages[{number}]", message) for number, message in enumerate(messages)])
    tools, variables = options.get("tools"), options.get("template_kwargs")
    if tools is not None and not isinstance(tools, str) and not _is_list(tools):
        raise wrong("tools", tools, "a list of tools")
    if variables is not None and not isinstance(variables, (str, Mapping)):
        raise wrong("template_kwargs", variables, "a dict")
    if tools:
        set_field(chat, "tools_json", "tools", json_text("tools", tools))
    if variables:
        set_field(chat, "template_kwargs_json", "template_kwargs", json_text("template_kwargs", variables))
    if options.get("add_generation_prompt") is not None:
        set_field(chat, "add_generation_prompt", "add_generation_prompt", options["add_generation_prompt"])
    return chat
