"""Tests that the heads of a running server are swapped, and that no client notices."""

import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import harness
from drafter_command import drafter, heads, read_metric
from prompts import requests

KINDS = ("medusa", "blockwise", "eagle", "layer_skip", "pass")
MODES = {"greedy": dict(temperature=0), "reproducible": dict(seed=7), "sampled": dict(seed=7, reproducible=False)}


@pytest.fixture(scope="module")
def plain(plain_bytes):
    return plain_bytes(MODES, target=harness.EMBEDDED_TARGET)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of heads of all kinds, and of some that do not work."""
    folder = tmp_path_factory.mktemp("heads")
    for kind in KINDS:
        (folder / f"my-{kind}").symlink_to(harness.EMBEDDED_TARGET.parent / kind)
    shutil.copytree(harness.EMBEDDED_TARGET.parent / "eagle", folder / "short")
    weights = folder / "short" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def server(tmp_path, folder):
    server = harness.Server(tmp_path, target=harness.EMBEDDED_TARGET, drafter="none", heads=harness.EMBEDDED_TARGET.parent / "medusa",
                            heads_folder=folder, max_slots=8)
    yield server
    server.stop()


def drafted_by(outputs):
    return {stats.name for output in outputs for stats in output.completion.speculation.drafters if stats.num_draft_tokens > 0}


def test_heads_of_every_kind_take_over(server, plain):
    assert heads(drafter(server, "list")) == ("medusa", "medusa")
    for kind in KINDS:
        assert heads(drafter(server, "swap-heads", f"my-{kind}")) == (f"my-{kind}", kind)
        for mode, options in MODES.items():
            outputs = server.generate_all(requests(**options, draft_length=4, max_tree_nodes=8), 4)
            assert [output.bytes for output in outputs] == plain[mode], (kind, mode)
            assert drafted_by(outputs) == {kind}
        assert kind in server.info().drafters and not (set(KINDS) - {kind}) & set(server.info().drafters)
    for kind in (*reversed(KINDS[:-1]), "medusa"):  # the last swap, and the ones before
        name = heads(drafter(server, "rollback-heads"))
    assert name == ("medusa", "medusa")  # those of the beginning
    assert "no swap of heads to take back" in drafter(server, "rollback-heads", code=1)
    assert heads(drafter(server, "swap-heads", "none")) == ("none", None)
    outputs = server.generate_all(requests(temperature=0), 4)
    assert [output.bytes for output in outputs] == plain["greedy"] and drafted_by(outputs) == set()
    assert server.info().load.num_verifier_losses == 0


@pytest.mark.parametrize("mode", MODES)
def test_heads_are_swapped_under_load(server, plain, mode):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        outputs = pool.submit(server.generate_all, requests(**MODES[mode]) * 8, 8)
        harness.wait_until(lambda: server.info().load.num_running > 0, 10, "requests run")
        rounds = 0
        while not outputs.done() or rounds == 0:
            for kind in ("eagle", "blockwise", "layer_skip"):
                drafter(server, "swap-heads", f"my-{kind}")
            drafter(server, "swap-heads", "none")
            drafter(server, "rollback-heads")
            rounds += 1
        assert [output.bytes for output in outputs.result(60)] == plain[mode] * 8
    assert server.info().load.num_verifier_losses == 0


def test_the_router_shows_which_heads_there_are(tmp_path, folder):
    server = harness.Server(tmp_path, target=harness.EMBEDDED_TARGET, drafter="none", heads_folder=folder, max_slots=8, admin="127.0.0.1:0")

    def pods(name, kind):
        return read_metric(server, "router", rf'tandem_verifier_heads.*drafter="{kind}".*heads="{name}".*')

    try:
        drafter(server, "swap-heads", "my-eagle")
        harness.wait_until(lambda: pods("my-eagle", "eagle") == 1, 10, "the heads are shown")
        drafter(server, "swap-heads", "my-medusa")
        harness.wait_until(lambda: (pods("my-eagle", "eagle"), pods("my-medusa", "medusa")) == (0, 1), 10, "the new ones are")
    finally:
        server.stop()


def test_a_verifier_that_comes_back_gets_the_heads_again(server, plain):
    drafter(server, "swap-heads", "my-eagle")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        outputs = pool.submit(server.generate_all, requests(temperature=0, draft_length=3) * 6, 8)
        harness.wait_until(lambda: server.info().load.num_running > 0, 10, "requests run")
        os.kill(server.child("tandem-verifier"), signal.SIGKILL)
        assert [output.bytes for output in outputs.result(60)] == plain["greedy"] * 6
    harness.wait_until(lambda: heads(drafter(server, "list")) == ("my-eagle", "eagle"), 30, "the heads are back")
    assert drafted_by(server.generate_all(requests(temperature=0, draft_length=3), 2)) == {"eagle"}


@pytest.mark.parametrize("name, why", [
    ("missing", r'"missing" is not in --heads-folder, which holds my-blockwise, my-eagle, my-layer_skip, my-medusa, my-pass, short'),
    ("empty", r"config\.json: is missing \(want a folder of heads\)"),
    ("short", r"model\.safetensors"),
])
def test_heads_that_do_not_work_are_given_up(server, plain, name, why):
    told = drafter(server, "swap-heads", name, code=1)
    assert re.search(why, told) and f"{name} was given up" in told, told
    assert heads(drafter(server, "list")) == ("medusa", "medusa")
    outputs = server.generate_all(requests(temperature=0, draft_length=3), 2)
    assert [output.bytes for output in outputs] == plain["greedy"] and drafted_by(outputs) == {"medusa"}
    # The way back of an earlier swap is still there.
    drafter(server, "swap-heads", "my-eagle")
    drafter(server, "swap-heads", name, code=1)
    assert heads(drafter(server, "rollback-heads")) == ("medusa", "medusa")


def test_swaps_that_make_no_sense_are_refused(server):
    assert "there is no swap of heads to take back" in drafter(server, "rollback-heads", code=1)
    assert "want the name of a folder in --heads-folder" in drafter(server, "swap-heads", "a/b", code=1)
    for arguments, complaint in [(["swap-head", "x"], "did you mean swap-heads?"), (["swap-heads"], "NAME"),
                                 (["swap-heads", "x", "--share", "0.5"], "--share is for load")]:
        ended = harness.run_cli("drafter", *arguments, "--connect", server.address)
        assert ended.returncode == 2 and complaint in ended.stderr, ended.stderr


def test_a_server_that_began_without_heads_gets_some(tmp_path, folder, plain):
    server = harness.Server(tmp_path, target=harness.EMBEDDED_TARGET, drafter="none", heads_folder=folder, max_slots=8)
    try:
        assert heads(drafter(server, "list")) is None  # nothing is said of them
        with concurrent.futures.ThreadPoolExecutor() as pool:
            outputs = pool.submit(server.generate_all, requests(temperature=0, draft_length=3) * 4, 8)
            drafter(server, "swap-heads", "my-blockwise")
            assert [output.bytes for output in outputs.result(60)] == plain["greedy"] * 4
        assert drafted_by(server.generate_all(requests(temperature=0, draft_length=3), 2)) == {"blockwise"}
        assert heads(drafter(server, "rollback-heads")) == ("none", None)
    finally:
        server.stop()


def test_without_a_folder_heads_stay(servers):
    server = servers(target=harness.EMBEDDED_TARGET, drafter="none", heads=harness.EMBEDDED_TARGET.parent / "medusa", max_slots=8)
    assert "started without --heads-folder" in drafter(server, "swap-heads", "my-eagle", code=1)
    for folder, complaint in [("/nowhere", "--heads-folder: /nowhere is no folder"),
                              (str(harness.EMBEDDED_TARGET.parent / "eagle"), "has a config.json itself")]:
        ended = harness.run_cli("generate", "--target", str(harness.EMBEDDED_TARGET), "--heads-folder", folder, "Once")
        assert ended.returncode != 0 and complaint in ended.stderr, ended.stderr


def test_a_swap_that_another_one_overtakes_says_so(server):
    def swap(name):
        return harness.run_cli("drafter", "swap-heads", name, "--connect", server.address)

    worker = server.child("tandem-verifier")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        os.kill(worker, signal.SIGSTOP)  # so that the first one is under way
        try:
            first = pool.submit(swap, "my-eagle")
            harness.wait_until(lambda: "my-eagle" in drafter(server, "list"), 10, "the first one is asked for")
            second = pool.submit(swap, "my-blockwise")
            harness.wait_until(lambda: "my-blockwise" in drafter(server, "list"), 10, "the second one is asked for")
        finally:
            os.kill(worker, signal.SIGCONT)
        assert second.result(30).returncode == 0, second.result().stderr
        assert first.result(30).returncode == 1 and "asked for something else" in first.result().stderr
    assert heads(drafter(server, "list")) == ("my-blockwise", "blockwise")


def test_a_canceled_swap_that_changes_nothing_changes_nothing(server):
    drafter(server, "swap-heads", "my-eagle")
    drafter(server, "swap-heads", "my-blockwise")
    worker = server.child("tandem-verifier")
    os.kill(worker, signal.SIGSTOP)
    try:
        again = subprocess.Popen([str(harness.BINARY_DIR / "bin" / "tandem"), "drafter", "swap-heads", "my-blockwise", "--connect",
                                  server.address], stderr=subprocess.PIPE, text=True)
        time.sleep(0.5)
        again.send_signal(signal.SIGINT)
        assert again.wait(10) == 130
        assert "my-blockwise was given up, and the former heads stay: the load was canceled" in again.stderr.read()
        again.stderr.close()
    finally:
        os.kill(worker, signal.SIGCONT)
    harness.wait_until(lambda: heads(drafter(server, "list")) == ("my-blockwise", "blockwise"), 30, "the heads are as before")
