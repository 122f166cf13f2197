#!/usr/bin/env python3
"""Checks habits that no compiler or formatter checks: tidy.py [--update-baseline] [--list] [--root FOLDER]

Each finding belongs to a rule and to a file:

  function-length  A function in C++ or CUDA has a body of at most 70 lines. The lines of a table do not count. A braced
                   initializer with code in it, such as the body of a lambda, is no table.
  columns          A line has at most 100 columns in C++, CUDA and proto, and at most 140 in Python and shell. Markdown has
                   no limit, because tables and links cannot be wrapped.
  comment-start    A comment does not begin with "Of", "Whose", "Whom" or "What of".
  class-size       A class in services/ has at most 500 lines: its definition and the bodies of its functions.
  class-fields     A class in services/, or a struct inside of a class, has at most 20 fields. The fields of a struct that a member holds by value count one
                   by one, whichever file declares the struct. A struct of values (parameters and counters) counts as one
                   field: its name ends in Options, Params, Request, Config, Counts, Stats or Flags.
  dead-declaration A function that a header declares is called, or at least named, somewhere.
  link             A relative link in Markdown leads to a file, and its anchor to a heading.
  path             A path in backticks in Markdown exists, if it begins with a folder of this repository. A part in capital
                   letters is a placeholder.
  preset           Markdown names only presets of CMakePresets.json in `tools/build.sh PRESET` and `--preset PRESET`.
  spelling         Words have their American spelling. Names that gRPC and Abseil chose, and keys of kept reports, are exempt.
  folder-units     A folder has at most 12 units, unless an ADR lists it. The .h, .cc and .cu files of one stem are one unit.
  folder-readme    A folder has a README.md that begins with a title and a paragraph, or the next README.md above names the
                   folder in backticks, with a slash at the end: `compose/grafana/`. A part in capital letters is a placeholder.
  test-registered  A CMakeLists.txt names each test_NAME.py of tests/system and each NAME_test.cc, so that ctest runs it.

tools/tidy_baseline.txt has the findings that are known: RULE COUNT FILE. The check fails if a file has more findings than
its baseline, and also if it has fewer: then --update-baseline makes the baseline smaller. An ADR lists a folder with an
item that begins with "`FOLDER` has 13".
"""

import argparse
import bisect
import collections
import dataclasses
import functools
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

MAX_FUNCTION_LINES = 70
MAX_CLASS_LINES = 500
MAX_CLASS_FIELDS = 20
MAX_FOLDER_UNITS = 12
BASELINE = "tools/tidy_baseline.txt"

# File name endings by language.
CPP = (".cc", ".h", ".cu", ".cuh")
COLUMNS = {".cc": 100, ".h": 100, ".cu": 100, ".cuh": 100, ".proto": 100, ".py": 140, ".sh": 140}
SLASH_COMMENTS = (*CPP, ".proto", ".js", ".css")
HASH_COMMENTS = (".py", ".sh", ".cmake", ".yaml", ".yml", ".tpl", ".env", ".service", ".conf", "CMakeLists.txt", "Dockerfile", "ignore",
                 ".ci/run", "/tandem-healthcheck", "/tandem-workers", ".clang-format", ".clang-tidy")
BLOCK_COMMENTS = (".tpl", ".yaml", "NOTES.txt", ".html")  # comments of Go templates and of HTML
COMMENTED = (*SLASH_COMMENTS, *HASH_COMMENTS, *BLOCK_COMMENTS)
PROSE = (".md", ".txt", ".json", *COMMENTED)

# Recorded data and generated files, which nobody edits for style, and the files that must contain forbidden words.
SKIPPED = re.compile(r"^(tests/golden/|tests/fuzz/corpus/|tests/helm/golden/|bench/results/|(tests/)?models/.*(?<!\.md)$|"
                     r"tools/tidy\.py$|tests/tools/test_tidy\.py$|LICENSE$)")
SOURCE_FOLDERS = ("services/", "common/", "kernels/", "proto/")

# Structs of parameters and of counters.
VALUES = re.compile(r"(?:Options|Params|Request|Config|Counts|Stats|Flags)$")

# A word in lower case must not match this pattern. Names of other projects in backticks are not checked.
BRITISH = re.compile(
    r"behaviour|neighbour|colour|favour|^honour|^labour|flavour|rumour|^centred?$|^centring|^grey$|judgement|artefact|"
    r"^whilst$|^amongst$|^learnt$|^spelt$|^spoilt$|^burnt$|^ageing$|^analys(?:e[ds]?|ing)$|licence|^defence|^offence|sceptic|"
    r"^mould|^fulfil(?:s|ment)?$|skilful|^enrol$|labell(?:ed|ing)|modell(?:ed|ing)|signall(?:ed|ing)|travell(?:ed|ing|er)|"
    r"levell(?:ed|ing)|totall(?:ed|ing)|^cancell(?:ed|ing)$|"
    r"(?:normal|organ|optim|initial|serial|token|quant|synchron|recogn|summar|util|minim|maxim|author|random|vector|parallel|"
    r"general|special|categor|visual|stabil|final|capital|priorit|custom|critic|standard|penal|material|memor|equal|local|"
    r"global|factor|linear|regular|polar|emphas)is(?:e|ed|es|er|ers|ing|ation|ations)$|characteris(?:e|ed|es|ing|ation)$")
# Web addresses, names and messages of gRPC and Abseil, and keys of JSON reports that are kept.
NOT_OURS = re.compile(r"""https?://\S+|\b(?:CANCELLED|kCancelled|IsCancelled|CancelledError|Cancelling all calls)\b|(["'])cancelled\1""")


@dataclasses.dataclass(frozen=True)
class Finding:
    rule: str
    file: str
    line: int
    text: str


class Tree:
    """The files of a checkout: those that git tracks, and new ones that it does not ignore."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        everything = [f for f in self._all() if (root / f).is_file()]
        self.files = sorted(f for f in everything if not SKIPPED.match(f))
        self.folders = sorted({str(folder) for f in everything for folder in list(pathlib.PurePosixPath(f).parents)[:-1]})

    def _all(self) -> list[str]:
        if (self.root / ".git").exists():
            listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=self.root,
                                     check=True, capture_output=True, text=True)
            return sorted(set(listing.stdout.split("\0")) - {""})
        return [str(p.relative_to(self.root)) for p in self.root.rglob("*") if p.is_file()]

    def ending(self, *endings: str) -> list[str]:
        return [f for f in self.files if f.endswith(endings)]

    @functools.cache
    def text(self, file: str) -> str:
        return (self.root / file).read_text(encoding="utf-8", errors="replace")

    @functools.cache
    def cpp(self, file: str) -> "Cpp":
        return Cpp(self.text(file))


# ---- C++ -----------------------------------------------------------------------------------------------------------------

CPP_TOKEN = re.compile(
    r'(?P<comment>//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/)'
    r'|(?P<raw>R"(?P<delimiter>[^()\s\\]{0,16})\(.*?\)(?P=delimiter)")'
    r'|(?P<string>"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`)'  # JavaScript has backticks
    r"|(?P<char>(?<![0-9a-zA-Z_])(?:u8|[uUL])?'(?:[^'\\\n]|\\.)+')", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE | re.DOTALL)
CLASS_HEAD = re.compile(r"\b(class|struct|union)\s+(?:alignas\s*\([^)]*\)\s*|\[\[[^]]*\]\]\s*)*(?P<outer>(?:\w+::)*)(?P<name>[A-Za-z_]\w*)(?:\s*<[^{]*>)?"
                        r"\s*(?:final\s*)?(?::(?!:)|$)")
NAME_BEFORE_PARENTHESIS = re.compile(r"((?:[A-Za-z_]\w*\s*(?:<[^<>()]*>)?\s*::\s*)*)(~?[A-Za-z_]\w*|operator\s*[^\s(\w]{1,3}|"
                                     r"operator\s*\(\s*\)|operator\s+[\w:<>]+)\s*\(")
ATTRIBUTE = re.compile(r"\b(?:alignas|__launch_bounds__|__attribute__|noexcept|explicit|decltype|requires)\s*"
                       r"\((?:[^()]|\([^()]*\))*\)")
PARENTHESES = re.compile(r"operator\s*\S+|\([^()]*(?:\([^()]*\)[^()]*)*\)")
TEMPLATE = re.compile(r"\btemplate\s*<[^{]*?>\s*(?=(?:class|struct|union)\b)")
NO_FUNCTION_OR_FIELD = re.compile(r"using\b|friend\b|typedef\b|static_assert\b|template\s*<[^;]*>\s*(class|struct)\s+\w+$")
NOT_A_FUNCTION = {"if", "for", "while", "switch", "catch", "return", "sizeof", "alignof", "decltype", "noexcept", "requires",
                  "alignas", "static_assert", "defined", "__attribute__", "__launch_bounds__", "__declspec", "new", "delete"}


def _blank(match: re.Match) -> str:
    return re.sub(r"[^\n]", " ", match.group())


@dataclasses.dataclass
class Scope:
    """One pair of braces."""
    kind: str  # namespace, class, function, block, table or other
    name: str  # name of a class or a function
    owner: str  # the class that a function belongs to, or the class around a class
    key: str  # class, struct or union
    head_begin: int
    begin: int  # position of {
    end: int = -1  # position of }
    parent: "Scope | None" = None
    children: list["Scope"] = dataclasses.field(default_factory=list)


class Cpp:
    """A C++ file without its comments, strings and directives, and the braces in it."""

    def __init__(self, text: str):
        self.text = text
        self.comments: list[tuple[int, str]] = []

        def hide(match: re.Match) -> str:
            if match.group("comment"):
                self.comments.append((match.start(), match.group()))
                return _blank(match)
            inside = _blank(match)
            return '"' + inside[1:-1] + '"' if len(inside) > 1 else inside

        self.names = CPP_TOKEN.sub(hide, text)  # with directives: macros name functions too
        self.code = DIRECTIVE.sub(_blank, self.names)
        self._newlines = [i for i, c in enumerate(text) if c == "\n"]
        self.heads: list[tuple[str, str, int]] = []  # declarations: (owner, name, position)
        self.scopes: list[Scope] = []
        self.fields: dict[int, list[tuple[str, int]]] = collections.defaultdict(list)  # by position of the class's {
        self._parse()

    def line(self, position: int) -> int:
        return bisect.bisect_left(self._newlines, position) + 1

    def lines(self, scope: Scope) -> int:
        return self.line(scope.end) - self.line(scope.begin) + 1

    def _parse(self) -> None:
        code = self.code
        top: Scope | None = None
        begin = 0  # position of the statement
        depth = 0  # depth of parentheses in the statement
        saved: list[tuple[int, int]] = []
        for match in re.finditer(r"[{}();]|(?:public|private|protected)\s*:(?!:)", code):
            token, position = match.group(), match.start()
            if token == "(":
                depth += 1
            elif token == ")":
                depth = max(0, depth - 1)
            elif token == "{":
                scope = self._open(code[begin:position], begin, position, top, depth)
                self.scopes.append(scope)
                if top:
                    top.children.append(scope)
                top = scope
                saved.append((begin, depth))
                begin, depth = position + 1, 0
            elif token == "}":
                if not top:
                    continue  # two branches of an #if open the same brace
                top.end = position
                begin_before, depth = saved.pop()
                goes_on = top.kind in ("table", "lambda") or top.kind == "class"
                begin = begin_before if goes_on else position + 1
                top = top.parent
            elif token == ";":
                if depth == 0:
                    self._statement(begin, position, top)
                    begin = position + 1
            elif depth == 0 and top and top.kind == "class":
                begin = match.end()
        for scope in self.scopes:
            if scope.end < 0:
                scope.end = len(code) - 1

    def _open(self, head: str, begin: int, position: int, top: Scope | None, depth: int) -> Scope:
        scope = Scope("block", "", "", "", begin + len(head) - len(head.lstrip()), position, parent=top)
        flat = re.sub(r"\{[^{}]*\}", "", head).strip()
        last = flat[-1:] or ""
        inside_function = bool(top) and top.kind in ("function", "block", "lambda", "table")
        if re.search(r"\[[^\[\]]*\]\s*(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?\s*(?:mutable\s*)?(?:noexcept\s*)?(?:->[^(){}]*)?$", flat) and \
            not re.search(r"\w\s*\[[^\[\]]*\]$", flat):
            scope.kind = "lambda"
        elif depth > 0 or last in ("=", ",", "(") or re.search(r"\breturn\b[\w:<>, *&\s]*$", flat):
            scope.kind = "table"
        elif inside_function:
            initializes = re.search(r"[\w>\]]$", flat) and not re.search(r"\b(else|do|try)$", flat) and "(" not in flat
            nested = last == "" and top.kind == "table"
            declares = re.match(r"(class|struct|union|enum)\b", flat)
            scope.kind = "table" if (initializes or nested) and not declares else "block"
        elif re.search(r"\bnamespace\b", flat) or re.fullmatch(r'extern\s*"\s*"', flat):
            scope.kind = "namespace"
        elif re.search(r"\benum\b", flat):
            scope.kind = "class"
            scope.key = "enum"
        elif flat == "struct":
            scope.kind, scope.key, scope.name = "class", "struct", f"Unnamed{position}"
            scope.owner = top.name if top and top.kind == "class" else ""
        elif match := CLASS_HEAD.search(TEMPLATE.sub("", flat)):
            scope.kind, scope.key, scope.name = "class", match.group(1), match["name"]
            scope.owner = match["outer"].rpartition("::")[0].rpartition("::")[2] or (top.name if top and top.kind == "class" else "")
        elif "(" in flat and re.search(r"\)\s*(?:noexcept[^:]*)?:(?!:)", flat) and re.search(r"[\w>]$", flat):
            scope.kind = "table"  # Class() : field_{…}
        elif "(" in flat and not re.search(r"(?<![=!<>])=(?!=)", PARENTHESES.sub("", flat)):
            scope.kind = "function"
            scope.owner, scope.name = self._function(flat, top)
        elif re.search(r"[\w>\]]$", flat):
            scope.kind = "table"  # int field{1};
        return scope

    def _function(self, head: str, top: Scope | None) -> tuple[str, str]:
        """Returns (class, name) of the function that a head declares, or two empty strings."""
        owner = top.name if top and top.kind == "class" else ""
        head = ATTRIBUTE.sub(" ", head)
        for match in NAME_BEFORE_PARENTHESIS.finditer(head):
            name = match.group(2)
            if name in NOT_A_FUNCTION:
                return "", ""
            qualifiers = [q for q in re.split(r"\s*::\s*", re.sub(r"<[^<>]*>", "", match.group(1))) if q]
            return (qualifiers[-1].strip() if qualifiers else owner), name
        return "", ""

    def _statement(self, begin: int, end: int, top: Scope | None) -> None:
        """Remembers the declarations of a statement outside of functions."""
        if top and top.kind not in ("class", "namespace") or top and top.key == "enum":
            return
        statement = self.code[begin:end].strip()
        position = begin + len(self.code[begin:end]) - len(self.code[begin:end].lstrip())
        if not statement or NO_FUNCTION_OR_FIELD.match(statement):
            return
        nested = [s for s in (top.children if top else self.scopes) if s.kind == "class" and begin <= s.begin < end]
        if nested:
            rest = self.code[nested[-1].end + 1:end].strip()
            if top and rest:
                self.fields[top.begin].append((f"{nested[-1].name} {rest}", position))
            return
        if re.match(r"(class|struct|union|enum)\s+[\w:]+(\s*:[^;]*)?$", statement):
            return
        flat = statement
        while (shorter := re.sub(r"\{[^{}]*\}|<[^<>()]*(?:\([^()]*\)[^<>()]*)*>", "", flat)) != flat:
            flat = shorter
        before_value = re.split(r"(?<![=!<>])=(?!=)", flat)[0] if "operator" not in flat else flat
        if "(" in before_value:
            owner, name = self._function(before_value, top)
            if name:
                self.heads.append((owner, name, position))
        elif top and top.kind == "class" and not re.match(r"(static|constexpr|inline)\b", statement):
            declarators = before_value.count(",") + 1
            self.fields[top.begin].extend([(statement, position)] * declarators)


def comments(tree: Tree, file: str) -> Iterator[tuple[int, int, bool, str]]:
    """Yields (line, column, whether code precedes it, text) for each line of each comment."""
    if file.endswith(SLASH_COMMENTS):
        source = tree.cpp(file)
        for position, text in source.comments:
            line = source.line(position)
            begin = source.text.rfind("\n", 0, position) + 1
            column = position - begin
            trailing = bool(source.text[begin:position].strip())
            for i, part in enumerate(text.split("\n")):
                yield line + i, column, trailing and i == 0, re.sub(r"^\s*(///?|/\*\*?|\*)?\s*", "", part).removesuffix("*/")
    if file.endswith(BLOCK_COMMENTS):
        text = tree.text(file)
        for match in re.finditer(r"(?:\{\{-?\s*/\*|<!--)\s*(.*?)\s*(?:\*/\s*-?\}\}|-->)", text, re.DOTALL):
            line, column = text.count("\n", 0, match.start(1)) + 1, match.start(1) - text.rfind("\n", 0, match.start(1)) - 1
            for i, part in enumerate(match.group(1).split("\n")):
                yield line + i, column, False, part.strip()
    if file.endswith(HASH_COMMENTS):
        for number, text in enumerate(tree.text(file).split("\n"), 1):
            if match := re.match(r"""((?:[^"'#]|"[^"]*"|'[^']*')*?)(?:^|(?<=\s))#(?!!)\s?(.*)""", text):
                yield number, len(match.group(1)), bool(match.group(1).strip()), match.group(2)
            elif file.endswith(".py") and (match := re.match(r'(\s*)"""\s*(\w.*)', text)):
                yield number, len(match.group(1)), True, match.group(2)


# ---- Rules ---------------------------------------------------------------------------------------------------------------


def sources(tree: Tree, *folders: str) -> list[str]:
    return [f for f in tree.ending(*CPP) if f.startswith(folders or SOURCE_FOLDERS)]


def table_lines(source: Cpp, scope: Scope) -> int:
    total = 0
    for child in scope.children:
        if child.kind == "table" and ";" not in source.code[child.begin:child.end]:
            total += max(0, source.lines(child) - 2)
        else:
            total += table_lines(source, child)
    return total


def function_length(tree: Tree) -> Iterator[Finding]:
    for file in tree.ending(*CPP):
        source = tree.cpp(file)
        for scope in source.scopes:
            if scope.kind == "function" and (lines := source.lines(scope) - table_lines(source, scope)) > MAX_FUNCTION_LINES:
                yield Finding("function-length", file, source.line(scope.begin), f"{scope.name} has {lines} lines")


def columns(tree: Tree) -> Iterator[Finding]:
    for file in tree.ending(*COLUMNS):
        limit = COLUMNS[pathlib.PurePosixPath(file).suffix]
        for number, text in enumerate(tree.text(file).split("\n"), 1):
            if len(text) > limit:
                yield Finding("columns", file, number, f"{len(text)} columns")


def comment_start(tree: Tree) -> Iterator[Finding]:
    bad = re.compile(r"(of|whose|whom|what of)\b", re.IGNORECASE)
    for file in tree.ending(*COMMENTED):
        before = (-2, -1, "")
        for line, column, trailing, text in comments(tree, file):
            begins = trailing or (before[0], before[1]) != (line - 1, column) or before[2] == ""
            sentence = text[:1].isupper() and re.search(r"[.:!?)]$", before[2])
            if (begins or sentence) and bad.match(text):
                yield Finding("comment-start", file, line, text[:60])
            before = (line, column, text.strip())


@dataclasses.dataclass
class Class:
    file: str
    source: Cpp
    scope: Scope
    lines: int


def classes(tree: Tree) -> dict[tuple[str, str], Class]:
    """Classes and structs of services/, by folder and name, with the lines of their functions' bodies elsewhere."""
    found: dict[tuple[str, str], Class] = {}
    for file in sources(tree, "services/"):
        source = tree.cpp(file)
        folder = file.rpartition("/")[0]
        for scope in source.scopes:
            if scope.kind == "class" and scope.name:
                found.setdefault((folder, scope.name), Class(file, source, scope, source.lines(scope)))
    for file in sources(tree, "services/"):
        source = tree.cpp(file)
        folder = file.rpartition("/")[0]
        for scope in source.scopes:
            owner = found.get((folder, scope.owner)) if scope.kind == "function" else None
            if owner and not (owner.source is source and owner.scope.begin < scope.begin < owner.scope.end):
                owner.lines += source.line(scope.end) - source.line(scope.head_begin) + 1
    return found


def class_size(tree: Tree) -> Iterator[Finding]:
    for (_, name), item in classes(tree).items():
        if item.lines > MAX_CLASS_LINES:
            yield Finding("class-size", item.file, item.source.line(item.scope.begin), f"{name} has {item.lines} lines")


@functools.cache
def includes(tree: Tree, file: str) -> list[str]:
    """Returns the file and the files of this repository that it includes, the nearest first."""
    found = [file]
    for one in found:
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', tree.text(one), re.MULTILINE):
            if name not in found and name in tree.files:
                found.append(name)
    return found


def find_struct(tree: Tree, file: str, inside: Scope, name: str) -> tuple[str, Scope] | None:
    """Returns the struct that a name means inside of a class, with its file."""
    *qualifiers, name = name.split("::")
    owners = [qualifiers[-1]] if qualifiers else []
    while not qualifiers and inside and inside.kind == "class":
        owners += [inside.name, inside.owner]
        inside = inside.parent
    for owner in [*owners, ""]:
        for other in includes(tree, file):
            for scope in tree.cpp(other).scopes:
                if scope.key == "struct" and scope.name == name and scope.owner == owner:
                    return other, scope
    return None


def count_fields(tree: Tree, file: str, scope: Scope) -> int:
    total = 0
    for text, _ in tree.cpp(file).fields[scope.begin]:
        match = re.match(r"(?:(?:const|mutable)\s+)*((?:\w+::)*\w+)(?:\s*<.*>)?\s+\w", text, re.DOTALL)
        bundled = find_struct(tree, file, scope, match.group(1)) if match and not VALUES.search(match.group(1)) else None
        total += count_fields(tree, *bundled) if bundled and bundled[1] is not scope else 1
    return total


def class_fields(tree: Tree) -> Iterator[Finding]:
    for file in sources(tree, "services/"):
        source = tree.cpp(file)
        for scope in source.scopes:
            limited = scope.key == "class" or scope.key == "struct" and scope.owner and not VALUES.search(scope.name)
            if limited and (fields := count_fields(tree, file, scope)) > MAX_CLASS_FIELDS:
                yield Finding("class-fields", file, source.line(scope.begin), f"{scope.name} has {fields} fields")


def dead_declaration(tree: Tree) -> Iterator[Finding]:
    uses: collections.Counter[str] = collections.Counter()
    heads: collections.Counter[str] = collections.Counter()
    for file in tree.ending(*CPP):
        source = tree.cpp(file)
        uses.update(re.findall(r"[A-Za-z_]\w*", source.names))
        heads.update(name for _, name, _ in source.heads)
        heads.update(s.name for s in source.scopes if s.kind == "function")
    for file in sources(tree):
        if not file.endswith((".h", ".cuh")):
            continue
        source = tree.cpp(file)
        declared = source.heads + [(s.owner, s.name, s.begin) for s in source.scopes if s.kind == "function"]
        for owner, name, position in declared:
            special = name in (owner, "main", "") or not name[0].isalpha() or name.startswith("operator") or name.isupper()
            if not special and uses[name] <= heads[name] and not re.match(r"[^;{]*\boverride\b", source.code[position:]):
                yield Finding("dead-declaration", file, source.line(position), f"{name} is named nowhere else")


def prose(text: str) -> str:
    """Markdown without its code blocks, line for line."""
    return re.sub(r"^([ \t]*)(```+|~~~+).*?^\1?[ \t]*\2", _blank, text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    counts: collections.Counter[str] = collections.Counter()
    for heading in re.findall(r"^#+ +(.*?)\s*#*$", prose(text), re.MULTILINE):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found.add(slug if not counts[slug] else f"{slug}-{counts[slug]}")
        counts[slug] += 1
    return found


def resolve(file: str, target: str) -> str:
    parts: list[str] = []
    for part in (pathlib.PurePosixPath(file).parent / target).parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def link(tree: Tree) -> Iterator[Finding]:
    for file in tree.ending(".md"):
        text = prose(tree.text(file))
        for match in re.finditer(r"(?<!`)\[[^\]]*\]\(([^)\s]+)[^)]*\)", re.sub(r"``?[^`\n]+``?", _code_span, text)):
            target, _, anchor = match.group(1).partition("#")
            line = text.count("\n", 0, match.start()) + 1
            if re.match(r"[a-z]+:", target):
                continue
            path = resolve(file, target) if target else file
            if not (tree.root / path).exists():
                yield Finding("link", file, line, f"{match.group(1)}: no such file")
            elif anchor and path.endswith(".md") and anchor not in anchors(tree.text(path)):
                yield Finding("link", file, line, f"{match.group(1)}: no such heading")


def _code_span(match: re.Match) -> str:
    return match.group() if "](" in match.group() else "`" + " " * (len(match.group()) - 2) + "`"


def path(tree: Tree) -> Iterator[Finding]:
    top = {f.partition("/")[0] for f in tree.files if "/" in f}
    for file in tree.ending(".md"):
        if file == "CHANGELOG.md":
            continue  # describes the past
        text = prose(tree.text(file))
        for match in re.finditer(r"`(\.?/?[\w.\-]+/[\w.\-/]*)(?::\d+)?`", text):
            target = match.group(1).removeprefix("./").rstrip("/")
            if re.search(r"(?:^|[/_])[A-Z]{3,}(?=[/_.]|$)(?!\.md)", target):
                continue  # has a placeholder
            if target.partition("/")[0] in top and not (tree.root / target).exists() and not list(
                (tree.root / target).parent.glob(pathlib.PurePosixPath(target).name + ".*")):
                yield Finding("path", file, text.count("\n", 0, match.start()) + 1, f"{match.group(1)}: no such file")


def preset(tree: Tree) -> Iterator[Finding]:
    file = tree.root / "CMakePresets.json"
    presets = json.loads(file.read_text())["configurePresets"] if file.exists() else []
    known = {one["name"] for one in presets if not one.get("hidden")}
    for file in tree.ending(".md"):
        text = tree.text(file)
        for match in re.finditer(r"(?:tools/build\.sh|--preset)[ =]([a-z][\w-]*)", text):
            if match.group(1) not in known:
                yield Finding("preset", file, text.count("\n", 0, match.start()) + 1, f"{match.group(1)} is no preset of CMakePresets.json")


@functools.cache
def is_british(word: str) -> bool:
    return bool(BRITISH.search(word))


def spelling(tree: Tree) -> Iterator[Finding]:
    for file in tree.ending(*PROSE):
        text = NOT_OURS.sub(_blank, tree.text(file))
        if file.endswith(".md"):
            text = re.sub(r"`[^`\n]+`", _blank, prose(text))
        for match in re.finditer(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}", text):
            if is_british(match.group().lower()):
                yield Finding("spelling", file, text.count("\n", 0, match.start()) + 1, match.group())


def unit(file: str) -> str:
    """Returns the part of a file's name that all files of its unit share."""
    name, _, ending = file.rpartition("/")[2].rpartition(".")
    return re.sub(r"(_(cpu|cuda|reference))+$", "", name) if f".{ending}" in CPP else name


def folder_units(tree: Tree) -> Iterator[Finding]:
    listed = {name.rstrip("/") for file in tree.ending(".md") if file.startswith("docs/adr/")
              for name in re.findall(r"^[*-] `([^`]+)` has \d+", tree.text(file), re.MULTILINE)}
    units: dict[str, set[str]] = collections.defaultdict(set)
    for file in tree.ending(*CPP, ".py", ".sh"):
        units[file.rpartition("/")[0]].add(unit(file))
    for folder in sorted(units.keys() | listed):
        count = len(units[folder])
        if count > MAX_FOLDER_UNITS and folder not in listed:
            yield Finding("folder-units", folder, 1, f"{count} units")
        if count <= MAX_FOLDER_UNITS and folder in listed:
            yield Finding("folder-units", folder, 1, f"an ADR excuses it, but it has {count} units")


def folder_readme(tree: Tree) -> Iterator[Finding]:
    for folder in map(pathlib.PurePosixPath, tree.folders):
        above = next((f for f in (folder, *folder.parents) if (tree.root / f / "README.md").exists()), pathlib.PurePosixPath())
        readme, rest = str(above / "README.md"), str(folder.relative_to(above))
        text = prose(tree.text(readme)) if (tree.root / readme).exists() else ""
        if above == folder:
            if not re.match(r"# .+\n+(?!#|\|)\S", text):
                yield Finding("folder-readme", str(folder), 1, "its README.md does not begin with a title and a paragraph")
            continue
        names = (re.sub(r"\b[A-Z]+\b", "[^/]+", re.escape(name)) for name in re.findall(r"`([\w./-]+)/`", text))
        if not any(re.fullmatch(name, rest) for name in names):
            yield Finding("folder-readme", str(folder), 1, f"it has no README.md, and {readme} does not name `{rest}/`")


def test_registered(tree: Tree) -> Iterator[Finding]:
    for file in tree.ending(".py", ".cc"):
        folder, _, name = file.rpartition("/")
        test = re.fullmatch(r"test_(\w+)\.py|(\w+)_test\.cc", name)
        # Other folders are run by pytest as a whole.
        if test is None or not (folder == "tests/system" or (test[2] and folder.startswith("tests/"))):
            continue
        lists = [tree.root / above / "CMakeLists.txt" for above in pathlib.PurePosixPath(file).parents]
        names = "\n".join(path.read_text() for path in lists if path.exists())
        if not re.search(rf"\b(test_)?{test[1] or test[2]}(_test)?\b", names):
            yield Finding("test-registered", file, 1, "no CMakeLists.txt names it")


RULES = (function_length, columns, comment_start, class_size, class_fields, dead_declaration, link, path, preset, spelling,
         folder_units, folder_readme, test_registered)


def check(root: pathlib.Path) -> list[Finding]:
    tree = Tree(root)
    return [finding for rule in RULES for finding in rule(tree)]


def read_baseline(root: pathlib.Path) -> dict[tuple[str, str], int]:
    file = root / BASELINE
    lines = file.read_text().splitlines() if file.exists() else []
    return {(rule, name): int(count) for rule, count, name in (line.split(" ", 2) for line in lines if line and line[0] != "#")}


def write_baseline(root: pathlib.Path, counts: dict[tuple[str, str], int]) -> None:
    lines = ["# Known findings of tools/tidy.py: RULE COUNT FILE. Counts only shrink; --update-baseline writes this file."]
    lines += [f"{rule} {count} {file}" for (rule, file), count in sorted(counts.items())]
    (root / BASELINE).write_text("\n".join(lines) + "\n")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--update-baseline", action="store_true", help="lowers the counts of the baseline to what is found")
    parser.add_argument("--list", action="store_true", help="prints every finding, known ones included")
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent, help="the checkout")
    options = parser.parse_args(arguments)

    findings = check(options.root)
    counts = collections.Counter((f.rule, f.file) for f in findings)
    known = read_baseline(options.root)
    more = [key for key in counts if counts[key] > known.get(key, 0)]
    fewer = [key for key in known if counts[key] < known[key]]
    if options.update_baseline:
        first = not (options.root / BASELINE).exists()
        known = dict(counts) if first else {key: min(n, counts[key]) for key, n in known.items() if counts[key]}
        write_baseline(options.root, known)
        more, fewer = [key for key in counts if counts[key] > known.get(key, 0)], []
    for finding in findings:
        if options.list or (finding.rule, finding.file) in more:
            print(f"{finding.file}:{finding.line}: {finding.rule}: {finding.text}")
    for rule, file in sorted(more):
        print(f"error: {file} has {counts[rule, file]} findings of {rule}; {known.get((rule, file), 0)} are known", file=sys.stderr)
    for rule, file in sorted(fewer):
        print(f"error: {file} has {counts[rule, file]} findings of {rule}, and {BASELINE} says {known[rule, file]}: "
              "run tools/tidy.py --update-baseline", file=sys.stderr)
    return 1 if more or fewer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
