"""Runs the commands of README.md, CONTRIBUTING.md and docs that stand in blocks marked `sh`, in the order of the page, and the Python
programs of the pages about the API.

A page runs in a folder of its own that looks like the checkout, so that commands may write files. Ports are replaced by free ones, and
the folders of large models by the embedded pair. A server runs until its page ends. `NOT_RUN` names the commands that need what a test
does not have. Their flags are checked if they are commands of Tandem. Blocks marked `text` are no commands."""

import os
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

DOCS = harness.SOURCE_DIR / "docs"
GUIDES = DOCS / "guides"
PAGES = [harness.SOURCE_DIR / "README.md", harness.SOURCE_DIR / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md")), *sorted(GUIDES.glob("*.md"))]
STUBS = pathlib.Path(generate_pb2.__file__).parents[2]
BIN = harness.BINARY_DIR / "bin"
SECONDS = 120  # longest time of a command
NOT_RUN = {  # a pattern of commands, and what they need
    r"^\./(demo|test)\.sh|^ctest |^tools/build\.sh|^tools/check_sources\.sh|-m pytest ": "these build what is tested, or run tests",
    r"^docker ": "a container engine, and images of the network",
    r"^(helm|kubectl|tools/fetch_cluster\.sh)|test_cluster": "a control plane",
    r"^(install|tar|systemctl) ": "root, and a machine that runs systemd",
    r"^grpcurl ": "a program of the network",
    r"--backend cuda|^bench/gpu\.sh|^(ncu|compute-sanitizer) |gpu_check_archive": "a GPU",
    r"^tests/fuzz/fuzz\.sh|fuzz_tokenizer FILE": "clang, and minutes",
    r"/tmp/large/": "gigabytes, and minutes",
    r"^build/cpu-release/tests/simulate --seeds 1000000|scaling_simulation": "minutes",
    r"10\.0\.0\.|dns:": "other machines",
}
PRELUDE = {  # the servers that a page has in its words, or that stand in for a container
    "cli": ["tandem serve", "tandem serve --listen 127.0.0.1:0 --admin 127.0.0.1:9470"],
    "containers": ["tandem serve"],
}
SHORTER = {r"--seconds \d+": "--seconds 0.2", r"^tandem bench serve$": "tandem bench serve --clients 1,32 --pairs 1 --requests 1"}
FINDS_A_BUG = "--bug "  # such a command of the simulator finds the planted bug and ends with 1
FOLDERS = {"~/Llama-3.2-3B-Instruct": harness.TALES_TARGET, "~/Llama-3.2-1B-Instruct": harness.TALES_DRAFT,
           "models/Llama-3.2-3B-Instruct": harness.TALES_TARGET, "models/Llama-3.2-1B-Instruct": harness.TALES_DRAFT,
           "--model TARGET": f"--model {harness.TALES_TARGET}", "--target TARGET": f"--target {harness.TALES_TARGET}",
           "--model DRAFT": f"--model {harness.TALES_DRAFT}"}
PORTS = ("50051", "50052", "8000", "9464", "9465", "9466", "9470")


def blocks(page):
    """Returns (language, text) of the page's code blocks."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page):
    """Returns the commands of the page's blocks: lines, without comments and with their continuations."""
    text = "".join(text for language, text in blocks(page) if language == "sh").replace("\\\n", " ")
    lines = (re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines())
    return [line for line in lines if line]


def need(command):
    """Returns what a command needs that a test does not have, or None."""
    return next((what for pattern, what in NOT_RUN.items() if re.search(pattern, command)), None)


class Page:
    """Runs the commands of one page."""

    def __init__(self, folder):
        self.folder = folder
        self.checkout = folder / "checkout"
        self.checkout.mkdir()
        for entry in harness.SOURCE_DIR.iterdir():
            if entry.name not in ("build", ".git"):
                (self.checkout / entry.name).symlink_to(entry)
        (self.checkout / "build").mkdir()
        (self.checkout / "build" / "cpu-release").symlink_to(harness.BINARY_DIR)
        (self.checkout / "build" / "venv").symlink_to(sys.prefix)
        (folder / "run").mkdir()
        self.ports = dict(zip(PORTS, map(str, ports.free_ports(len(PORTS)))))
        self.assignments = ""
        self.servers = []
        self.environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "TANDEM_ADMIN": f"127.0.0.1:{self.ports['9464']}"}
        del self.environment["TANDEM_MODELS"]  # the commands use the embedded pair

    @property
    def port(self):
        return self.ports["50051"]

    def replaced(self, line):
        for name, path in FOLDERS.items():
            line = line.replace(name, str(path))
        for pattern, shorter in SHORTER.items():
            line = re.sub(pattern, shorter, line)
        line = line.replace("/run/tandem", str(self.folder / "run"))
        return re.sub(r":(" + "|".join(PORTS) + r")\b", lambda found: ":" + self.ports[found[1]], line)

    def run(self, line):
        """Returns the output of a command; a server's is in a file."""
        if re.fullmatch(r"\w+=\S+", line):
            self.assignments += line + "\n"
            return ""
        line = self.replaced(line)
        if re.match(r"\S*tandem(-gateway|-router|-verifier|-draft| serve)\b", line):
            return self.serve(line)
        done = subprocess.run(["bash", "-c", self.assignments + line], cwd=self.checkout, env=self.environment, capture_output=True,
                              text=True, timeout=SECONDS)
        assert done.returncode == (1 if FINDS_A_BUG in line else 0), f"{line}\n{done.stdout}\n{done.stderr}"
        assert FINDS_A_BUG not in line or "findings" in done.stdout
        assert "gtest_filter" not in line or not re.search(r"Running 0 tests", done.stdout), "the filter matches nothing"
        return done.stdout + done.stderr

    def serve(self, line):
        if "--listen" not in line:
            line += f" --listen 127.0.0.1:{self.port}"
        log_path = self.folder / f"server-{len(self.servers)}.log"
        with open(log_path, "w") as log:
            server = subprocess.Popen(["bash", "-c", f"{self.assignments}exec {line}"], cwd=self.checkout, env=self.environment,
                                      stdout=subprocess.PIPE, stderr=log, text=True)
        self.servers.append(server)
        for _ in range(2 if "--http" in line else 1):
            assert server.stdout.readline().startswith(("ready: ", "http: ")), log_path.read_text()
        return ""

    def stop(self):
        for server in reversed(self.servers):
            server.send_signal(signal.SIGINT)
        codes = [server.wait(30) for server in self.servers]
        for server in self.servers:
            server.stdout.close()
        assert set(codes) <= {0}


@pytest.fixture
def page_runner(tmp_path):
    page = Page(tmp_path)
    yield page
    page.stop()


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.stem)
def test_every_command_of_a_page_works(page, page_runner):
    for line in PRELUDE.get(page.stem, []) + commands(page):
        if need(line):
            continue
        began = time.monotonic()
        output = page_runner.run(line)
        print(f"{time.monotonic() - began:.1f} s: {line}\n{output}")


def test_each_reason_not_to_run_a_command_has_a_command():
    lines = [line for page in PAGES for line in commands(page)]
    assert [pattern for pattern in NOT_RUN if not any(re.search(pattern, line) for line in lines)] == []
    assert sum(need(line) is None for line in lines) >= 35


def tandem_commands():
    """Returns the commands of Tandem that are not run, as (executable, words)."""
    for page in PAGES:
        for line in commands(page):
            words = shlex.split(line.replace("…", ""))
            if need(line) and re.fullmatch(r"(\S*/)?tandem(-router|-verifier|-draft)?", words[0]):
                yield pathlib.Path(words[0]).name, words[1:]


def unknown_flags(executable, words):
    help_of = [executable] + ([words[0]] if executable == "tandem" else []) + ["--help-all"]
    known = subprocess.run([str(BIN / help_of[0]), *help_of[1:]], capture_output=True, text=True, check=True).stdout
    return [word for word in words
            if word.startswith("--") and not re.search(rf"^ +(\S+, )*{re.escape(word)}(?![\w-])", known, re.MULTILINE)]


def test_the_commands_that_are_not_run_have_no_unknown_flag():
    found = list(tandem_commands())
    assert len(found) >= 4
    assert [(executable, words, unknown) for executable, words in found if (unknown := unknown_flags(executable, words))] == []
    assert unknown_flags("tandem-router", ["--verifier", "10.0.0.1:1", "--verifiers", "--draft"]) == ["--verifiers", "--draft"]


@pytest.mark.parametrize("page", [DOCS / "api.md", GUIDES / "python.md"], ids=lambda page: page.stem)
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
