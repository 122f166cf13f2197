"""Tests how outputs and batches are shown."""

import html
import io
import re
import sys
import types

import pytest

from tandem_client import Source, Token, display
from tandem_client.progress import Line, Progress, Tracker
from tandem_client.results import Output

PROMPT = "Once upon a time there was a king who"
ACCEPTED, BONUS, PLAIN = Source.ACCEPTED, Source.BONUS, Source.PLAIN


class Terminal(io.StringIO):

    def isatty(self):
        return True


def token(data, source=PLAIN):
    return Token(id=1, source=source, logprob=-1.0, text=data.decode(errors="replace"), bytes=data)


def pieces(*parts):
    """Returns [(text, source)] of parts (text, tokens), with neighbors of one source joined."""
    segmenter = display.Segmenter()
    joined = []
    for text, one in [*(piece for part in parts for piece in segmenter.add(*part)), *segmenter.end()]:
        source = one and one.source
        if joined and joined[-1][1] == source:
            joined[-1] = (joined[-1][0] + text, source)
        else:
            joined.append((text, source))
    return joined


def test_text_is_aligned_with_its_tokens():
    a, b = token(b"on", ACCEPTED), token(b"ce", BONUS)
    assert pieces(("once", [a, b])) == [("on", ACCEPTED), ("ce", BONUS)]
    assert pieces(("o", [a]), ("nce", [b])) == [("on", ACCEPTED), ("ce", BONUS)]      # text in pieces
    assert pieces(("", [a, b]), ("once", [])) == [("on", ACCEPTED), ("ce", BONUS)]    # text that comes later
    assert pieces(("on", [a, b])) == [("on", ACCEPTED)]                               # a stop cut the text
    assert pieces(("onc", [a, b])) == [("on", ACCEPTED), ("c", BONUS)]
    end = token(b"<|end|>", PLAIN)
    assert pieces(("once", [a, end, b])) == [("on", ACCEPTED), ("ce", BONUS)]         # a special token gives no text
    assert pieces(("once", [a, b, end])) == [("on", ACCEPTED), ("ce", BONUS)]


def test_characters_in_several_tokens_stay_whole():
    first, second = "ü".encode()[:1], "ü".encode()[1:]
    assert pieces(("", [token(first, ACCEPTED)]), ("ü", [token(second, BONUS)])) == [("ü", BONUS)]
    text = "".join(piece for piece, _ in pieces(("a\ufffd", [token(b"a", ACCEPTED), token(first, BONUS)])))
    assert text == "a\ufffd"


def test_without_texts_of_tokens_there_are_no_sources():
    plain = Token(id=1, source=ACCEPTED)
    assert pieces(("once", [plain]), (" upon", [plain])) == [("once upon", None)]


@pytest.fixture
def completion(client):
    return client.complete(PROMPT, temperature=0, max_tokens=40, draft_length=4, token_texts=True, logprobs=1)


def test_a_terminal_gets_colors_by_source(completion, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    colored = completion.colored(True)
    assert re.sub(r"\x1b\[\d*m", "", colored) == completion.text
    for code, source in (("32", ACCEPTED), ("33", Source.RECOVERED), ("36", BONUS)):
        texts = [one.text for one in completion.tokens if one.source is source]
        assert re.findall(rf"\x1b\[{code}m(.*?)\x1b\[0m", colored, re.DOTALL) == texts
    assert "\x1b[32m" in colored and completion.colored(False) == completion.text
    terminal, file = Terminal(), io.StringIO()
    assert display.wants_color(terminal) and not display.wants_color(file)
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not display.wants_color(terminal) and display.wants_color(terminal, True)


def test_show_writes_while_text_arrives(client, completion, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    options = dict(temperature=0, max_tokens=40, draft_length=4)
    file, terminal = io.StringIO(), Terminal()
    assert client.show(PROMPT, file=file, **options).text == completion.text
    assert file.getvalue() == completion.text + "\n"
    client.show(PROMPT, file=terminal, **options)
    shown, _, summary = terminal.getvalue().partition("\n  tokens")
    assert re.sub(r"\x1b\[\d*m", "", shown) == completion.text and "\x1b[32m" in shown
    assert "of drafted" in summary and "tokens/s" in summary


def test_control_characters_do_not_reach_a_terminal():
    evil = "a\x1b]0;x\x07\x9b31m\tb\n\x7f\r"
    assert display.visible(evil) == "a␛]0;x␇\ufffd31m\tb\n␡␍"
    output = Output(index=0, request_id="", text=evil, tokens=())
    assert "\x1b" not in output.colored(True)


def test_html_has_the_text_the_sources_and_the_numbers(client):
    done = client.complete("<b> & the wolf said", n=2, seed=1, max_tokens=20, token_texts=True)
    page = done._repr_html_()
    shown = re.sub(r"<[^>]*>", "", "".join(re.findall(r"<pre.*?</pre>", page, re.DOTALL)))
    assert html.unescape(shown) == "".join(choice.text for choice in done.choices)
    assert page.count("<table>") == 2 and f"seed {done.choices[1].seed}" in page and 'title="' in page
    assert done.choices[1]._repr_html_() != done.choices[0]._repr_html_()
    bad = Output(index=0, request_id="", text="<script>", tokens=())
    assert "<script>" not in display.html_of_output(bad)
    assert "Completion(index=0" in repr(done) and "finish_reason='" in repr(done)


@pytest.fixture
def notebook(monkeypatch):
    """Stands in for IPython in a kernel. Returns the list of what its cells showed."""
    shown = []

    class Handle:
        def update(self, one):
            shown.append(one)

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.HTML = str
    ipython.display.display = lambda one, display_id: Handle()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)
    return shown


def test_a_notebook_shows_a_stream_in_its_cell(client, notebook, capsys):
    done = client.show(PROMPT, temperature=0, max_tokens=40, draft_length=4)
    assert notebook[-1] == display.html_of_choices(done.choices)
    client.map([PROMPT] * 3, progress=True, temperature=0, max_tokens=5)
    assert notebook[-1].startswith('<progress value="3" max="3">')
    assert capsys.readouterr() == ("", "")


def test_progress_is_a_line_in_a_terminal_and_few_lines_elsewhere(client, capsys):
    def state(finished, seconds):
        return Progress(total=2, finished=finished, failed=0, tokens=10, accepted=3, recovered=1, seconds=seconds)

    terminal, file = Terminal(), io.StringIO()
    lines = Line(terminal), Line(file)
    for one in (state(0, 1.0), state(1, 2.0), state(1, 12.0), state(2, 13.0)):
        for line in lines:
            line(one)
    assert terminal.getvalue().count("\r") == 4 and terminal.getvalue().count("\n") == 1
    lines[0](state(1, 14.0))
    for line in lines:
        line.end()
    assert terminal.getvalue().endswith("\n") and terminal.getvalue().count("\n") == 2
    assert file.getvalue() == f"{state(1, 12.0)}\n{state(2, 13.0)}\n" and "acceptance 0.75" in file.getvalue()
    client.map([PROMPT], progress=True, temperature=0, max_tokens=5)
    assert re.fullmatch(r"1/1 prompts, 5 tokens, \d+ tokens/s(, acceptance \d\.\d\d)?\n", capsys.readouterr().err)


def test_a_tracker_without_a_report_counts_nothing():
    Tracker(1, None).finish()
    Tracker(1, False).fail()
