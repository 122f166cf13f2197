"""Tests `tandem chat` before a real server with the small pair: in a pipe, and on a terminal."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import time

import pytest

import harness
from tandem.v1 import generate_pb2 as pb

TANDEM = str(harness.BINARY_DIR / "bin" / "tandem")
TEMPLATE = "{{ bos_token }}{% for message in messages %}{{ message.content }}\n{% endfor %}"
OPENING = "Once upon a time there was a king who"
GREEN, YELLOW = "\x1b[32m", "\x1b[33m"  # accepted and recovered tokens


@pytest.fixture(scope="module")
def server(servers, tmp_path_factory):
    template = tmp_path_factory.mktemp("template") / "chat.jinja"
    template.write_text(TEMPLATE)
    return servers(chat_template=template, environment=harness.PATIENT)


def environment(tmp_path, **more):
    return {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "NO_COLOR": "", "TERM": "xterm", "LC_ALL": "C.UTF-8", **more}


def piped(server, tmp_path, lines, *arguments):
    return subprocess.run([TANDEM, "chat", "--connect", server.address, *arguments], input=lines, capture_output=True, text=True,
                          timeout=60, env=environment(tmp_path))


class Terminal:
    """`tandem chat` on a pseudo-terminal. `shown` is everything that came so far."""

    def __init__(self, server, tmp_path, *arguments, **more):
        self.end, its_end = pty.openpty()
        self.process = subprocess.Popen([TANDEM, "chat", "--connect", server.address, *arguments], stdin=its_end, stdout=its_end,
                                        stderr=its_end, start_new_session=True, env=environment(tmp_path, **more),
                                        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)))  # its controlling terminal
        os.close(its_end)
        self.shown = ""
        self._seen = 0  # what a later wait does not look at again

    def await_text(self, pattern):
        """Waits for text after what was awaited before. Returns the match."""
        deadline = time.monotonic() + 30
        while not (match := re.compile(pattern, re.DOTALL).search(self.shown, self._seen)):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.shown[self._seen:]!r} of {self.shown!r}"
            if select.select([self.end], [], [], 0.5)[0]:
                with contextlib.suppress(OSError):  # the other end is closed
                    self.shown += os.read(self.end, 65536).decode(errors="replace")
        self._seen = match.end()
        return match

    def type(self, text):
        os.write(self.end, text.encode())

    def await_prompt(self):
        self.await_text(r"> (\x1b\[K)?$")

    def say(self, text):
        self.await_prompt()
        self.type(text + "\r")

    def wait(self):
        """Returns the exit code."""
        deadline = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < deadline
            if select.select([self.end], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    self.shown += os.read(self.end, 65536).decode(errors="replace")
        os.close(self.end)
        return self.process.returncode


def test_a_line_of_a_pipe_is_answered(server, tmp_path):
    done = piped(server, tmp_path, OPENING + "\n", "--temperature", "0", "--max-tokens", "24", "--system", "A tale.")
    assert done.returncode == 0, done.stderr
    request = harness.request(None, temperature=0, max_tokens=24)
    request.chat.messages.extend([pb.ChatMessage(role="system", content="A tale."), pb.ChatMessage(role="user", content=OPENING)])
    assert done.stdout == harness.Output.read(server.stub.Generate(request, timeout=30)).text + "\n"
    assert re.search(r"24 tokens, \d+ tokens/s.*, first token after .*; cut at max_tokens\n", done.stderr)
    assert not (tmp_path / "state").exists()


def test_a_pipe_can_hold_a_conversation(server, tmp_path):
    saved = tmp_path / "saved.json"
    lines = f'One\\\ntwo\n/set max_tokens 3\n"""\nThree\n/four\n"""\n//five\n/save {saved}\n/reset\n/load {saved}\nSix\n/save {saved}\n'
    done = piped(server, tmp_path, lines, "--max-tokens", "5", "--seed", "1")
    assert done.returncode == 0, done.stderr
    messages = json.loads(saved.read_text())
    assert [message["content"] for message in messages[::2]] == ["One\ntwo", "Three\n/four", "/five", "Six"]
    assert [message["role"] for message in messages] == ["user", "assistant"] * 4
    assert done.stdout == "".join(message["content"] + "\n" * (not message["content"].endswith("\n")) for message in messages[1::2])


@pytest.mark.parametrize("line,words", [
    ("/set temperature -1", ["temperature", '"-1"', "from 0 to 1000000"]),
    ("/set draft_length 1000", ["draft_length", "from 0 to 16"]),
    ("/set drafter modle", ["drafter", "did you mean model?"]),
    ("/stas", ["there is no command /stas", "did you mean /stats?"]),
    ("/load /no/such/file", ["/load", "cannot read"]),
    ("/retry", ["there is no message"]),
    ("x " * 3000, ["INVALID_ARGUMENT", "1023 tokens"]),
], ids=["temperature", "draft_length", "drafter", "command", "load", "retry", "long"])
def test_an_error_in_a_pipe_ends_it_with_1(server, tmp_path, line, words):
    done = piped(server, tmp_path, line + "\nHello\n")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: ")
    for word in words:
        assert word in done.stderr


def test_the_oldest_messages_are_forgotten_when_the_context_is_full(server, tmp_path):
    long = [{"role": role, "content": f"{i} " + "and the king said to the queen " * 35}
            for i in range(3) for role in ("user", "assistant")]
    (tmp_path / "long.json").write_text(json.dumps({"messages": long}))
    saved = tmp_path / "saved.json"
    done = piped(server, tmp_path, f"/load {tmp_path}/long.json\nEnd\n/save {saved}\n", "--max-tokens", "8")
    assert done.returncode == 0, done.stderr
    assert "The context of 1024 tokens is full: the oldest" in done.stderr and "/reset" in done.stderr
    left = json.loads(saved.read_text())
    assert [message["content"].split()[0] for message in left[:-1]] == ["1", "1", "2", "2", "End"]


def test_a_terminal_shows_colors_and_commands(server, tmp_path):
    terminal = Terminal(server, tmp_path, "--temperature", "0", "--max-tokens", "60", "--draft-length", "4")
    legend = terminal.await_text("/help lists the commands.*■ plain").end()
    terminal.say(OPENING)
    answer = terminal.await_text("60 tokens, ")
    assert GREEN in terminal.shown[legend:answer.start()] and YELLOW in terminal.shown[legend:answer.start()]
    terminal.say("/set temperature 1000001")
    terminal.await_text("allowed: a number from 0 to 1000000")
    terminal.say("/set")
    terminal.await_text(r"temperature +0\s.*draft_length +4\s.*colors")
    terminal.say("/stats")
    terminal.await_text(r"by drafter\S* +\S+ +\d+ of \d+ drafted")
    terminal.say("/set colors never")
    terminal.await_text("colors +never")
    before = len(terminal.shown)
    terminal.say("/retry")
    terminal.await_text("60 tokens, ")
    assert GREEN not in terminal.shown[before:]
    # The key for the line before the last one.
    terminal.await_prompt()
    terminal.type("\x1b[A\x1b[A\r")
    terminal.await_text("colors +never")
    terminal.say("/quit")
    assert terminal.wait() == 0
    history = tmp_path / "state" / "tandem" / "chat_history"
    assert history.stat().st_mode & 0o777 == 0o600 and history.parent.stat().st_mode & 0o777 == 0o700
    assert history.read_text().splitlines()[:2] == [OPENING, "/set temperature 1000001"]


@pytest.mark.parametrize("kind", ["xterm", "dumb"])
def test_ctrl_c_stops_the_answer_and_not_the_chat(server, tmp_path, kind):
    saved = tmp_path / "saved.json"
    terminal = Terminal(server, tmp_path, "--max-tokens", "900", "--ignore-eos", "--drafter", "none", "--no-history", TERM=kind)
    terminal.say(OPENING)
    for _ in range(10):  # an answer may end before it is stopped
        harness.wait_until(lambda: server.info().load.num_running == 1, 30, "it runs")
        terminal.type("\x03")
        if (tokens := terminal.await_text(r"stopped after (\d+) tokens?;|first token after").group(1)) is not None:
            break
        terminal.say("/retry")
    assert int(tokens) < 900
    harness.wait_until(lambda: server.info().load.num_running == 0, 30, "the call is canceled")
    terminal.await_prompt()
    terminal.type("half a line\x03")
    terminal.await_text("/quit or Ctrl-D ends")
    terminal.say(f"/save {saved}")
    terminal.await_text("messages are in")
    messages = json.loads(saved.read_text())
    assert messages[0]["content"] == OPENING and len(messages) in (1, 2)  # nothing was shown yet, or something
    terminal.await_prompt()
    # A key between the prompt and the moment in which the editor takes the terminal over is lost.
    for _ in range(20):
        terminal.type("\x04")
        try:
            terminal.process.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            pass
    assert terminal.wait() == 0
    assert not (tmp_path / "state").exists()


def test_no_color_is_respected(server, tmp_path):
    terminal = Terminal(server, tmp_path, "--max-tokens", "40", "--draft-length", "4", NO_COLOR="1")
    terminal.say(OPENING)
    terminal.await_text("40 tokens, ")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.wait() == 130
    assert not re.search(r"\x1b\[3\dm", terminal.shown)
