"""The progress of a batch."""

from __future__ import annotations

import dataclasses
import html
import sys
import threading
import time
from collections.abc import Callable
from typing import TextIO, Union

from .display import NotebookCell, in_notebook
from .results import Part, Source

CALLBACK_SECONDS = 0.1
LINE_SECONDS = 10.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a batch is."""

    total: int
    """Number of prompts."""
    finished: int
    failed: int
    tokens: int
    """Tokens that have arrived, also those of requests that still run."""
    accepted: int
    """Draft tokens that were accepted."""
    recovered: int
    """Draft tokens that were rejected, each of which was followed by a recovered token."""
    seconds: float

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def acceptance(self) -> float | None:
        """Accepted draft tokens over those that were tested, so far; None if none was tested."""
        tested = self.accepted + self.recovered
        return self.accepted / tested if tested else None

    @property
    def is_last(self) -> bool:
        """True if no more comes."""
        return self.finished + self.failed == self.total

    def __str__(self) -> str:
        acceptance = "" if self.acceptance is None else f", acceptance {self.acceptance:.2f}"
        failed = f", {self.failed} failed" if self.failed else ""
        return f"{self.finished}/{self.total} prompts{failed}, {self.tokens} tokens, {self.tokens_per_second:.0f} tokens/s{acceptance}"


ProgressOption = Union[bool, Callable[[Progress], None]]
"""True: a display. Otherwise what is called about ten times a second with the state, and once at the end, by one thread at a time."""


class Line:
    """A line of a terminal that is written again and again; in another file, a line every ten seconds."""

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = sys.stderr if file is None else file
        self._is_terminal = self._file.isatty()
        self._written_at = 0.0
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        text = str(progress)
        if self._is_terminal:
            self._file.write(f"\r{text:<{self._width}}" + ("\n" if progress.is_last else ""))
            self._width = 0 if progress.is_last else len(text)
        elif progress.is_last or progress.seconds - self._written_at >= LINE_SECONDS:
            self._written_at = progress.seconds
            self._file.write(text + "\n")
        self._file.flush()


    def end(self) -> None:
        """Ends a line that no last state has ended."""
        if self._width:
            self._file.write("\n")
            self._width = 0


class Bar:
    """A bar in a notebook."""

    def __init__(self) -> None:
        self._cell = NotebookCell()

    def __call__(self, progress: Progress) -> None:
        done, total = progress.finished + progress.failed, max(1, progress.total)
        self._cell.show(lambda: f'<progress value="{done}" max="{total}"></progress> {html.escape(str(progress))}',
                        at_once=progress.is_last)

    def end(self) -> None:
        pass


class Tracker:
    """Counts what arrives, from any thread, and reports it."""

    def __init__(self, total: int, option: ProgressOption | None) -> None:
        self._display: Line | Bar | None = None
        if option is True:
            self._display = Bar() if in_notebook() else Line()
        self._report: Callable[[Progress], None] | None = option if callable(option) else self._display
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._reported_at = 0.0
        self._state = Progress(total=total, finished=0, failed=0, tokens=0, accepted=0, recovered=0, seconds=0.0)

    def add(self, part: Part) -> None:
        self._update(tokens=len(part.tokens), accepted=part.sources.count(Source.ACCEPTED),
                     recovered=part.sources.count(Source.RECOVERED))

    def finish(self) -> None:
        self._update(finished=1)

    def fail(self) -> None:
        self._update(failed=1)

    def end(self) -> None:
        """Ends the display, also after an error."""
        if self._display is not None:
            self._display.end()

    def _update(self, **counts: int) -> None:
        if self._report is None:
            return
        with self._lock:
            seconds = time.monotonic() - self._began
            state = dataclasses.replace(self._state, seconds=seconds,
                                        **{name: getattr(self._state, name) + count for name, count in counts.items()})
            self._state = state
            if state.is_last or seconds - self._reported_at >= CALLBACK_SECONDS:
                self._reported_at = seconds
                self._report(state)
