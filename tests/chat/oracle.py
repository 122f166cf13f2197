#!/usr/bin/env python3
"""Renders each template of this folder for each case, as transformers does, and compares the results with golden/, or writes them.

  oracle.py            compares, with jinja2 set up as transformers sets it up
  oracle.py --write    writes golden/
  oracle.py --transformers    also compares with apply_chat_template of transformers, where that is installed
  oracle.py --render < REQUEST    prints the result of one request, for experiments

Where Tandem does more than transformers (text parts are joined, arguments in JSON become objects), the script does the same first.
"""

import argparse
import copy
import datetime
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).resolve().parent
NOW = 1751328000 + 3600 * 9 + 60 * 5  # 2025-07-01 09:05 UTC, which chat_template_golden_test.cc uses too
REASONING = ("reasoning_content", "thinking", "reasoning")


class Raised(Exception):
    """raise_exception was called."""


class Generation(jinja2.ext.Extension):
    """{% generation %}, which prints what it holds."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def raise_exception(message):
    raise Raised(message)


def strftime_now(text):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).strftime(text)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment():
    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals.update(raise_exception=raise_exception, strftime_now=strftime_now)
    return made


def joined(message):
    if isinstance(message.get("content"), list):
        message["content"] = "\n".join(part["text"] for part in message["content"])
    return message


def with_objects(messages):
    """Arguments that are a text with an object become that object."""
    messages = copy.deepcopy(messages)
    for message in messages:
        for call in message.get("tool_calls") or []:
            holder = call.get("function", call)
            if isinstance(holder.get("arguments"), str):
                try:
                    parsed = json.loads(holder["arguments"] or "{}")
                except ValueError:
                    continue
                if isinstance(parsed, dict):
                    holder["arguments"] = parsed
    return messages


def normalized(messages):
    """What apply_chat_template of transformers 5 does to messages."""
    result = []
    for message in messages:
        message = {key: value for key, value in message.items() if value is not None}
        reasoning = next((message[key] for key in REASONING if message.get(key) is not None), None)
        if reasoning is not None:
            message = {"thinking": reasoning, **message, "reasoning_content": reasoning}
        result.append(message)
    return result


def by_jinja2(source, tokens, case, messages, tools):
    template = environment().from_string(source)
    variables = {"messages": normalized(messages), "tools": tools, "documents": None,
                 "add_generation_prompt": case.get("add_generation_prompt", True)}
    return template.render(**{**tokens, **case.get("kwargs", {}), **variables})


def by_transformers(source, tokens, case, messages, tools):
    import tokenizers  # pylint: disable=import-outside-toplevel
    import transformers
    from transformers.utils import chat_template_utils

    class Clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(NOW, datetime.timezone.utc)

    chat_template_utils.datetime = Clock
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0}, unk_token="x"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=model, chat_template=source, **tokens)
    try:
        return tokenizer.apply_chat_template(
            messages, tools=tools, tokenize=False, add_generation_prompt=case.get("add_generation_prompt", True), **case.get("kwargs", {}))
    except jinja2.exceptions.TemplateError as error:
        # raise_exception raises this class itself, and the engine raises its subclasses.
        if type(error) is jinja2.exceptions.TemplateError:  # pylint: disable=unidiomatic-typecheck
            raise Raised(str(error)) from error
        raise


def result_of(renderer, source, tokens, case, tools):
    messages = [joined(message) for message in copy.deepcopy(case["messages"])]
    tools = tools if case.get("tools") else None
    for shape in (with_objects(messages), messages):
        try:
            return {"text": renderer(source, tokens, case, shape, tools)}
        except Raised as error:
            return {"raises": str(error)}
        except (jinja2.exceptions.TemplateError, TypeError, ValueError, AttributeError, KeyError, IndexError):
            continue
    return {"fails": True}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--transformers", action="store_true")
    parser.add_argument("--render", action="store_true")
    arguments = parser.parse_args()
    if arguments.render:
        request = json.load(sys.stdin)
        print(json.dumps(result_of(by_jinja2, request["template"], request.get("special_tokens", {}), request, request.get("all_tools"))))
        return 0
    description = json.loads((HERE / "cases.json").read_text())
    all_tokens = json.loads((HERE / "tokens.json").read_text())
    wrong = compared = 0
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text()
        tokens = all_tokens.get(path.stem, all_tokens[""])
        golden = {name: result_of(by_jinja2, source, tokens, case, description["tools"]) for name, case in description["cases"].items()}
        text = json.dumps(golden, indent=0, ensure_ascii=False) + "\n"
        file = HERE / "golden" / (path.stem + ".json")
        if arguments.write:
            file.parent.mkdir(exist_ok=True)
            file.write_text(text)
        elif not file.exists() or file.read_text() != text:
            print(f"{file} is not what jinja2 renders: run {pathlib.Path(__file__).name} --write, and look at the difference")
            wrong += 1
        for name, case in description["cases"].items() if arguments.transformers else ():
            other = result_of(by_transformers, source, tokens, case, description["tools"])
            compared += 1
            if other != golden[name]:
                print(f"{path.stem}, {name}: transformers gives {other}, golden is {golden[name]}")
                wrong += 1
    if arguments.transformers:
        print(f"{compared} results compared with transformers")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
