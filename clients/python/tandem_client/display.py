"""Shows outputs by the sources of their tokens: with ANSI colors in a terminal, as HTML in a notebook."""

from __future__ import annotations

import collections
import html
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TextIO

if TYPE_CHECKING:
    from .results import Choice, Output, Part, Token

# The colors of `tandem generate`: green, yellow, cyan. Plain tokens have none.
ANSI = {"accepted": "32", "recovered": "33", "bonus": "36"}
BACKGROUNDS = {"accepted": "rgba(46,160,67,.28)", "recovered": "rgba(210,153,34,.32)", "bonus": "rgba(27,175,200,.28)",
               "plain": "transparent"}
REDRAW_SECONDS = 0.1


def wants_color(file: TextIO, color: bool | None = None) -> bool:
    """By default there is color only in a terminal, and not if NO_COLOR is set (https://no-color.org) or TERM is "dumb"."""
    if color is not None:
        return color
    return file.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else "\u2421" if code == 0x7F else "\ufffd"


def visible(text: str) -> str:
    """Replaces the control characters of an output, which could command a terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", _picture, text)


class Segmenter:
    """Finds which part of the text is from which source, while both arrive.

    The texts of the tokens are aligned with the text of the output as bytes. A token that gave no text, such as a special one, is passed
    over. Without texts of tokens, the text has no sources.
    """

    def __init__(self) -> None:
        self._text = b""  # what is not handed out yet
        self._matched = 0  # bytes of it that belong to tokens that were popped, up to an incomplete character
        self._tokens: collections.deque[Token] = collections.deque()

    def add(self, text: str, tokens: Iterable[Token]) -> Iterator[tuple[str, Token | None]]:
        """Yields pieces of text, each with the token that completed it."""
        self._text += text.encode()
        for token in tokens:
            if token.bytes is not None:
                self._tokens.append(token)
            elif not self._tokens:
                yield from self._take(len(self._text), None)
        while self._tokens and (size := self._next_size()) is not None:
            token = self._tokens.popleft()
            self._matched += size
            if self._is_whole(self._matched):
                yield from self._take(self._matched, token)

    def end(self) -> Iterator[tuple[str, Token | None]]:
        """Yields the rest: an incomplete character, or a token of which a stop left a part."""
        yield from self._take(len(self._text), self._tokens[0] if self._tokens else None)

    def _next_size(self) -> int | None:
        """Returns the number of bytes that the next token gave; None if its text has not arrived yet."""
        rest = self._text[self._matched:]
        data = self._tokens[0].bytes or b""
        if rest.startswith(data):
            return len(data)
        if data.startswith(rest):
            return None
        return 0  # it gave no text

    def _is_whole(self, size: int) -> bool:
        return size == len(self._text) or self._text[size] & 0xC0 != 0x80

    def _take(self, size: int, token: Token | None) -> Iterator[tuple[str, Token | None]]:
        piece, self._text, self._matched = self._text[:size], self._text[size:], 0
        if piece:
            yield piece.decode(errors="replace"), token


def segments(output: Output) -> Iterator[tuple[str, Token | None]]:
    segmenter = Segmenter()
    yield from segmenter.add(output.text, output.tokens)
    yield from segmenter.end()


def _ansi(text: str, token: Token | None) -> str:
    code = None if token is None else ANSI.get(token.source.value)
    text = visible(text)
    return text if code is None else f"\x1b[{code}m{text}\x1b[0m"


def legend() -> str:
    """Returns the names of the sources in their colors."""
    return "  ".join([*(f"\x1b[{code}m■ {name}\x1b[0m" for name, code in ANSI.items()), "■ plain"])


def colored(output: Output, color: bool | None = None) -> str:
    if not wants_color(sys.stdout, color):
        return visible(output.text)
    return "".join(_ansi(text, token) for text, token in segments(output))


def _span(text: str, token: Token | None) -> str:
    if token is None:
        return html.escape(visible(text))
    title = token.source.value + ("" if token.logprob is None else f", log-probability {token.logprob:.2f}")
    return (f'<span style="background:{BACKGROUNDS.get(token.source.value, "transparent")}" title="{title}">'
            f"{html.escape(visible(text))}</span>")


def html_of_output(output: Output) -> str:
    spans = "".join(_span(text, token) for text, token in segments(output))
    return f'<pre style="white-space:pre-wrap;word-break:break-word">{spans}</pre>'


def _html_legend() -> str:
    return " ".join(f'<span style="background:{color};padding:0 .4em">{name}</span>' for name, color in BACKGROUNDS.items())


def facts(choice: Choice) -> list[tuple[str, str]]:
    """Returns the lines of a summary: (name, value)."""
    stats, usage = choice.speculation, choice.usage
    counts = collections.Counter(source.value for source in choice.sources)
    speed = choice.tokens_per_second
    return [
        ("tokens", f"{usage.completion_tokens} after a prompt of {usage.prompt_tokens}; {choice.finish_reason.value}; seed {choice.seed}"),
        ("sources", ", ".join(f"{counts[name]} {name}" for name in (*ANSI, "plain"))),
        ("acceptance", f"{stats.acceptance_rate:.0%} of drafted; {stats.alpha:.2f} of tested; drafter {stats.drafter or 'none'}"),
        ("speed", f"first token after {choice.timings.time_to_first_token_seconds * 1000:.1f} ms"
                  + ("" if speed is None else f"; {speed:.0f} tokens/s")),
        *(("warning", warning) for warning in choice.warnings),
    ]


def html_of_choices(choices: Sequence[Choice]) -> str:
    parts = []
    for choice in choices:
        rows = "".join(f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{html.escape(value)}</td></tr>'
                       for name, value in facts(choice))
        parts.append(f"{html_of_output(choice)}<table>{rows}</table>")
    return f"<div>{''.join(parts)}<p>{_html_legend()}</p></div>"


class Display(Protocol):
    """Shows a stream while it runs."""

    def add(self, part: Part) -> None:
        """Takes the next part of the first choice."""

    def end(self, choice: Choice | None) -> None:
        """Ends the display. None: the stream failed."""


class TerminalDisplay:
    """Writes text when it arrives. A summary follows if the file is a terminal."""

    def __init__(self, file: TextIO, color: bool | None = None) -> None:
        self._file = file
        self._color = wants_color(file, color)
        self._segmenter = Segmenter()

    def add(self, part: Part) -> None:
        self._write(self._segmenter.add(part.text, part.tokens))

    def end(self, choice: Choice | None) -> None:
        self._write(self._segmenter.end())
        self._file.write("\n")
        if choice is not None and self._file.isatty():
            self._file.writelines(f"  {name:<11} {visible(value)}\n" for name, value in facts(choice))
        self._file.flush()

    def _write(self, pieces: Iterable[tuple[str, Token | None]]) -> None:
        self._file.write("".join(_ansi(text, token) if self._color else visible(text) for text, token in pieces))
        self._file.flush()


class NotebookCell:
    """A place in a notebook whose HTML can be replaced."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from IPython import display as ipython  # type: ignore[import-not-found,unused-ignore]

        self._html = ipython.HTML
        self._handle = ipython.display(ipython.HTML(""), display_id=True)
        self._clock = clock
        self._shown_at = 0.0

    def show(self, text: Callable[[], str], *, at_once: bool = False) -> None:
        """Replaces the HTML, at most ten times a second unless `at_once`."""
        if self._handle is None or (not at_once and self._clock() - self._shown_at < REDRAW_SECONDS):
            return
        self._shown_at = self._clock()
        self._handle.update(self._html(text()))


class NotebookDisplay:
    """Replaces the HTML of a cell while text arrives, and adds the summary at the end."""

    def __init__(self) -> None:
        self._cell = NotebookCell()
        self._segmenter = Segmenter()
        self._spans: list[str] = []

    def add(self, part: Part) -> None:
        self._spans.extend(_span(text, token) for text, token in self._segmenter.add(part.text, part.tokens))
        self._cell.show(self._html)

    def end(self, choice: Choice | None) -> None:
        self._spans.extend(_span(text, token) for text, token in self._segmenter.end())
        self._cell.show(self._html if choice is None else lambda: html_of_choices((choice,)), at_once=True)

    def _html(self) -> str:
        return f'<pre style="white-space:pre-wrap;word-break:break-word">{"".join(self._spans)}</pre>'


def in_notebook() -> bool:
    """Returns true in a kernel that shows HTML. IPython is not imported if the program has not."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def live_display(file: TextIO | None, color: bool | None) -> Display:
    """Returns the display for `file`, which is standard output by default; in a notebook, the cell."""
    if file is None and in_notebook():
        return NotebookDisplay()
    return TerminalDisplay(sys.stdout if file is None else file, color)
