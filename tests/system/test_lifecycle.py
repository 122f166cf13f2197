"""Tests starting and stopping: the printed lines, and what is left behind."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess

import grpc
import pytest

import harness
from prompts import PROMPTS
from tandem.v1 import generate_pb2 as pb
from tandem.v1 import generate_pb2_grpc

TANDEM = str(harness.BINARY_DIR / "bin" / "tandem")


def leftovers(server):
    return sorted(str(path.relative_to(server.temp_dir)) for path in server.temp_dir.rglob("*"))


def open_memory(pid):
    found = []
    for path in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(os.readlink(path))
    return [name for name in found if "memfd" in name]


def named_memory():
    """Returns the names in /dev/shm, without those of programs that other tests run at the same time: container engines and browsers."""
    return {name for name in os.listdir("/dev/shm") if not name.startswith(("libpod", ".org.chromium"))}


@pytest.mark.parametrize("how", ["ctrl-c", "SIGINT to the supervisor", "SIGTERM to the supervisor"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_stopping_leaves_nothing_behind(tmp_path, how, busy):
    shared_memory = named_memory()
    server = harness.Server(tmp_path)
    children = server.children()
    assert sorted(children.values()) == ["tandem-draft", "tandem-router", "tandem-verifier"]
    stream = server.start(PROMPTS[0], max_tokens=900, ignore_eos=True) if busy else iter(())
    if busy:
        next(stream)

    if how == "ctrl-c":
        os.killpg(server.process.pid, signal.SIGINT)  # a terminal also sends the signal to all of them
    else:
        server.process.send_signal(getattr(signal, how.split()[0]))
    try:
        last = None
        for last in stream:
            pass
        assert not busy or last.HasField("completion")  # the router drained
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE
    assert server.process.wait(25) == 0, server.log()
    server.channel.close()

    for pid in children:
        assert not pathlib.Path(f"/proc/{pid}").exists(), f"{children[pid]} still runs"
    assert leftovers(server) == []
    assert named_memory() <= shared_memory
    host, port = server.address.rsplit(":", 1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=2)


def test_children_stay_in_the_supervisors_session(tmp_path):
    server = harness.Server(tmp_path)
    assert {os.getsid(pid) for pid in server.children()} == {server.process.pid}
    server.stop()


def test_the_children_of_a_killed_supervisor_end(tmp_path):
    server = harness.Server(tmp_path)
    children = server.children()
    server.process.kill()
    server.process.wait()
    harness.wait_until(lambda: not any(pathlib.Path(f"/proc/{pid}").exists() for pid in children), 30, "all ended")


def test_log_prob_rows_have_no_name_in_the_file_system(tmp_path):
    shared_memory = named_memory()
    server = harness.Server(tmp_path, transport="shm")
    server.generate(PROMPTS[0], max_tokens=8, draft_length=4)
    assert named_memory() <= shared_memory
    assert all(open_memory(server.child(name)) for name in ("tandem-draft", "tandem-verifier"))
    assert open_memory(server.child("tandem-router")) == []
    for path in server.temp_dir.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, f"{path} is open to others"
    server.stop()


def test_listens_on_a_unix_socket(tmp_path):
    path = tmp_path / "socket"
    process = subprocess.Popen([TANDEM, "serve", "--listen", f"unix:{path}"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout.readline() == f"ready: unix:{path}\n"
        with grpc.insecure_channel(f"unix:{path}") as channel:
            assert generate_pb2_grpc.GenerationStub(channel).GetServerInfo(pb.GetServerInfoRequest(), timeout=30).model
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(25) == 0
    assert not path.exists()


def test_ready_is_one_line_and_the_only_output(tmp_path):
    process = subprocess.Popen([TANDEM, "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=25)
    assert first.startswith("ready: 127.0.0.1:") and not first.endswith(":0\n")
    assert rest == ""


def test_the_environment_sets_options(tmp_path):
    server = harness.Server(tmp_path, environment={"TANDEM_MAX_SLOTS": "5", "TANDEM_DRAFTER": "none"})
    info = server.info()
    server.stop()
    assert info.max_slots == 5 and not info.drafter_attached


@pytest.mark.parametrize("command", [["tandem"], ["tandem", "serve"], ["tandem", "generate"], ["tandem", "bench"],
                                     ["tandem-router"], ["tandem-draft"], ["tandem-verifier"]], ids=" ".join)
def test_help_can_be_read(command):
    done = subprocess.run([harness.BINARY_DIR / "bin" / command[0], *command[1:], "--help"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0 and len(done.stdout.splitlines()) > 5
    if command == ["tandem", "serve"]:
        for flag in ("--target", "--draft", "--draft-length", "--listen", "--max-slots"):
            assert flag in done.stdout


@pytest.mark.parametrize("arguments,words", [
    (["--target", "/no/such/folder"], ["--target", "/no/such/folder"]),
    (["--target", harness.TALES_TARGET, "--draft", "/no/such/folder"], ["--draft", "/no/such/folder"]),
    (["--listen", "nonsense"], ["--listen", "nonsense"]),
    (["--listen", "0.0.0.0:0"], ["--listen", "--insecure"]),
    (["--draft-length", "99"], ["--draft-length", "99"]),
    (["--draft-length", "-1"], ["--draft-length", "-1"]),
    (["--transport", "pigeon"], ["--transport", "pigeon"]),
    (["--drafter", "pigeon"], ["--drafter", "pigeon"]),
    (["--max-slots", "0"], ["--max-slots", "0"]),
    (["--no-such-flag"], ["--no-such-flag"]),
], ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else None)
def test_a_bad_option_is_named(arguments, words):
    done = subprocess.run([TANDEM, "serve", "--listen", "127.0.0.1:0", *map(str, arguments)] if arguments[0] != "--listen" else
                          [TANDEM, "serve", *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr + done.stdout, done.stderr


def test_a_taken_port_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = subprocess.run([TANDEM, "serve", "--listen", address], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "--listen" in done.stderr and address.rsplit(":", 1)[1] in done.stderr and "taken" in done.stderr


def test_replaced_weights_are_served_after_the_verifier_died(tmp_path, models):
    """The router accepts only the model that it began with. Without other pods it ends, and its next start accepts the new model."""
    shape = dict(vocabulary_size=4096, hidden_size=64, layers=2, dtype="bf16", untied=True, tokenizer_from=harness.TALES_TARGET)
    target = tmp_path / "target"
    shutil.copytree(models.random(seed=3, **shape), target)
    server = harness.Server(tmp_path, listen=f"unix:{tmp_path}/socket", target=target, draft=models.random(seed=3, **shape))

    def says(max_tokens=20):
        return server.generate(PROMPTS[0], temperature=0, max_tokens=max_tokens, ignore_eos=True).token_ids

    try:
        before = says()
        shutil.copy(models.random(seed=4, **shape) / "model.safetensors", target / "new")
        os.replace(target / "new", target / "model.safetensors")
        router = server.child("tandem-router")
        os.kill(server.child("tandem-verifier"), signal.SIGKILL)
        harness.wait_until(lambda: server.child("tandem-router") not in (router, None), 30, "the router was started again")
        for line in ("came back with other weights", "no worker pod is the one that was served"):
            harness.wait_until(lambda: line in server.log(), 30, f"the log says: {line}")

        def after():
            try:
                return says()
            except grpc.RpcError as error:
                assert error.code() == grpc.StatusCode.UNAVAILABLE
                return None

        harness.wait_until(after, 30, "it serves again")
        assert after() != before
    finally:
        server.stop()


@pytest.mark.parametrize("optional", [False, True], ids=["required", "optional"])
def test_a_drafter_with_another_tokenizer_is_refused_by_entry_unless_it_is_optional(tmp_path, models, optional):
    """Equal sizes are not enough. The vocabularies are compared entry by entry, and the first difference is named."""
    draft = models.random(vocabulary_size=4096, hidden_size=32, layers=1, max_positions=1024)
    command = [TANDEM, "serve", "--listen", "127.0.0.1:0", "--target", str(harness.TALES_TARGET), "--draft", str(draft)]
    command += ["--draft-optional"] if optional else []
    log = open(tmp_path / "log", "w+")
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
    line = process.stdout.readline()
    try:
        assert bool(line) == optional
        if optional:
            with grpc.insecure_channel(line.split()[1]) as channel:
                stub = generate_pb2_grpc.GenerationStub(channel)
                info = stub.GetServerInfo(pb.GetServerInfoRequest(), timeout=30)
                assert not info.drafter_attached and "tokenizer" in info.drafter_problem
                output = harness.Output.read(stub.Generate(harness.request(PROMPTS[0], max_tokens=4, temperature=0)))
                assert set(output.sources) == {pb.TOKEN_SOURCE_PLAIN}
        else:
            assert process.wait(25) == 1
    finally:
        process.terminate()
        process.wait(25)
    log.seek(0)
    message = log.read()
    assert "tokenizer" in message and "entry" in message, message
    if not optional:
        error, = re.findall(r"^error: (.*)$", message, re.MULTILINE)
        assert error.startswith("the drafter does not fit the target: ") and "--draft-optional" in error
        assert "goes on" not in error and "exited with status" not in message


def test_generate_prints_only_the_text_without_a_terminal(tmp_path):
    server = harness.Server(tmp_path)
    want = server.generate(PROMPTS[0], temperature=0, max_tokens=24)
    done = subprocess.run([TANDEM, "generate", "--connect", server.address, "--temperature", "0", "--max-tokens", "24",
                           PROMPTS[0]], capture_output=True, text=True, timeout=60)
    server.stop()
    assert done.returncode == 0, done.stderr
    assert want.text.strip() in done.stdout
    assert "\x1b" not in done.stdout
