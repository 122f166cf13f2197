#!/usr/bin/env python3
"""Writes the table of values in tandem/README.md from the comments of tandem/values.yaml: make_readme.py [--check]

The comment lines directly above a key describe the key, and every key must have some. A key without a value on its line is a group.
--check compares with the existing file and writes nothing.
"""

import pathlib
import re
import sys

CHART = pathlib.Path(__file__).resolve().parent / "tandem"
BEGIN, END = "<!-- made from values.yaml -->", "<!-- end -->"


def parse(text):
    """Yields (path, value, description) of each key. The value of a group is None."""
    comment, path = [], []
    for number, line in enumerate(text.splitlines(), 1):
        where = f"values.yaml:{number}"
        if match := re.fullmatch(r" *# ?(.*)", line):
            comment.append(match[1])
        elif not line.strip():
            comment = []
        elif match := re.fullmatch(r"( *)([A-Za-z]\w*):(?: (.+))?", line):
            indent, key, value = match.groups()
            depth, rest = divmod(len(indent), 2)
            if rest or depth > len(path):
                sys.exit(f"{where}: indented by {len(indent)} spaces, want two for each level")
            path = path[:depth] + [key]
            if not comment:
                sys.exit(f"{where}: {'.'.join(path)} has no comment above it")
            yield path, value, " ".join(comment)
            comment = []
        else:
            sys.exit(f"{where}: want `key: value` on one line, got {line!r}")


def cell(text):
    return text.replace("|", "\\|")


def table(text):
    lines = ["### All pods", "", "| value | default | what |", "| --- | --- | --- |"]
    for path, value, description in parse(text):
        name = ".".join(path)
        if value is None and len(path) == 1:
            lines += ["", f"### `{name}`", "", description, "", "| value | default | what |", "| --- | --- | --- |"]
        elif value is None:
            lines.append(f"| `{name}` | | *{cell(description)}* |")
        else:
            lines.append(f"| `{name}` | `{cell(value)}` | {cell(description)} |")
    return "\n".join(lines)


def main():
    readme = CHART / "README.md"
    old = readme.read_text()
    head, begin, rest = old.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"README.md: no {BEGIN} … {END}")
    new = f"{head}{BEGIN}\n\n{table((CHART / 'values.yaml').read_text())}\n\n{END}{tail}"
    if sys.argv[1:] == ["--check"]:
        if new != old:
            sys.exit("helm/tandem/README.md is not what values.yaml says: run helm/make_readme.py")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        readme.write_text(new)


if __name__ == "__main__":
    main()
