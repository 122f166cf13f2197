"""Runs every command block of README.md and docs/guides that is marked `sh`, in the order of the page, and every block marked `python`.

A server that a block starts runs until the page ends. Ports are replaced by free ones, and the folders of large models by the embedded
pair. Blocks marked `text` need the network or another machine."""

import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest

import harness
import ports
from tandem.v1 import generate_pb2

GUIDES = harness.SOURCE_DIR / "docs" / "guides"
PAGES = [harness.SOURCE_DIR / "README.md", *sorted(GUIDES.glob("*.md"))]
STUBS = pathlib.Path(generate_pb2.__file__).parents[2]
SECONDS = 120  # longest time of a command
# Commands that these tests cannot run, because they are what runs them or build what is tested.
LEFT_OUT = {"./demo.sh", "./test.sh"}
FOLDERS = {"~/Llama-3.2-3B-Instruct": harness.TALES_TARGET, "~/Llama-3.2-1B-Instruct": harness.TALES_DRAFT,
           "models/Llama-3.2-3B-Instruct": harness.TALES_TARGET, "models/Llama-3.2-1B-Instruct": harness.TALES_DRAFT}


def blocks(page):
    """Returns (language, text) of the page's code blocks."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page):
    return [line for language, text in blocks(page) if language == "sh" for line in text.splitlines()]


class Page:
    """Runs the commands of one page."""

    def __init__(self, folder):
        self.folder = folder
        self.port = ports.free_ports(1)[0]
        self.variables = {}
        self.server = None

    def arguments(self, line):
        for name, value in self.variables.items():
            line = line.replace(f"${name}", value)
        for name, path in FOLDERS.items():
            line = line.replace(name, str(path))
        line = line.replace("127.0.0.1:50051", f"127.0.0.1:{self.port}")
        words = shlex.split(line, comments=True)
        if words and words[0].startswith("build/cpu-release/"):
            words[0] = str(harness.BINARY_DIR / pathlib.Path(words[0]).relative_to("build/cpu-release"))
        return words

    def run(self, line):
        """Returns the output of a command; a server's is in self.log."""
        assignment = re.fullmatch(r"(\w+)=(\S+)", line)
        if assignment:
            self.variables[assignment[1]] = assignment[2]
            return ""
        words = self.arguments(line)
        if not words:
            return ""
        if "serve" in words and "bench" not in words:
            return self.serve(words)
        done = subprocess.run(words, cwd=harness.SOURCE_DIR, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def serve(self, words):
        assert self.server is None, "one server a page"
        if "--listen" not in words:
            words += ["--listen", f"127.0.0.1:{self.port}"]
        log = open(self.folder / "serve.log", "w+")
        server = subprocess.Popen(words, cwd=harness.SOURCE_DIR, stdout=subprocess.PIPE, stderr=log, text=True)
        assert server.stdout.readline().startswith("ready: "), (self.folder / "serve.log").read_text()
        self.server = server
        return ""

    def stop(self):
        if self.server is None:
            return
        self.server.send_signal(signal.SIGINT)
        assert self.server.wait(30) == 0


@pytest.fixture
def page_runner(tmp_path):
    page = Page(tmp_path)
    yield page
    page.stop()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_of_a_page_works(page, page_runner):
    for line in commands(page):
        if shlex.split(line, comments=True)[:1] and shlex.split(line, comments=True)[0] in LEFT_OUT:
            continue
        began = time.monotonic()
        output = page_runner.run(line)
        print(f"{time.monotonic() - began:.1f} s: {line}\n{output}")


def test_the_pages_have_commands():
    assert sum(len(commands(page)) for page in PAGES) >= 10


@pytest.mark.parametrize("page", [harness.SOURCE_DIR / "docs" / "api.md", GUIDES / "python.md"], ids=lambda page: page.stem)
def test_the_python_client_of_a_page_works(page, page_runner, tmp_path):
    programs = [text for language, text in blocks(page) if language == "python" and "import grpc" in text]
    assert programs
    page_runner.run("build/cpu-release/bin/tandem serve")
    for program in programs:
        file = tmp_path / "client.py"
        file.write_text(program.replace("127.0.0.1:50051", f"127.0.0.1:{page_runner.port}"))
        done = subprocess.run([sys.executable, file], env={"PYTHONPATH": str(STUBS)}, capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        assert "of the drafted tokens were accepted" in done.stdout
