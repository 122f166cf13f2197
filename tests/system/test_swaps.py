"""Tests that the draft models of a running server are swapped, and that no client notices."""

import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import time

import pytest

import harness
from drafter_command import drafter, read_metric, roles
from prompts import PROMPTS, requests

MODES = {"greedy": dict(temperature=0), "reproducible": dict(seed=7), "penalties": dict(temperature=0, repetition_penalty=1.3)}


@pytest.fixture(scope="module")
def plain(plain_bytes):
    return plain_bytes(MODES, target=harness.TALES_TARGET)


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory):
    """A folder of draft models: one that drafts well, one that drafts noise, and some that do not work."""
    folder = tmp_path_factory.mktemp("drafts")
    shutil.copytree(harness.TALES_DRAFT, folder / "good")
    (folder / "noise").symlink_to(models.tales_sized_draft())
    (folder / "misfit").symlink_to(models.random(vocabulary_size=64, layers=1))
    (folder / "empty").mkdir()
    (folder / "broken").mkdir()
    (folder / "broken" / "config.json").write_text("{}")
    return folder


@pytest.fixture
def server(tmp_path, folder):
    server = harness.Server(tmp_path, target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, draft_folder=folder, max_slots=8,
                            admin="127.0.0.1:0")
    yield server
    server.stop()


def drafted_by(outputs):
    return {stats.model for output in outputs for stats in output.completion.speculation.drafters if stats.num_draft_tokens > 0}


def test_a_canary_takes_over_and_is_rolled_back(server, plain):
    def check(expected, **options):
        used = set()
        for mode, of_mode in MODES.items():
            outputs = server.generate_all(requests(**of_mode, draft_length=3, **options), 4)
            assert [output.bytes for output in outputs] == plain[mode]
            used |= drafted_by(outputs)
        assert used == expected

    check({"draft"})
    assert roles(drafter(server, "load", "good", "--share", "0.5")) == {
        "draft": ("serving", "50 %", "attached"), "good": ("canary", "50 %", "attached")}
    check({"draft", "good"})
    listing = drafter(server, "list")
    assert re.search(r"\n\ngood as a canary: \d\.\d{3}x the speed of the models that serve \(95 % interval \d+\.\d{3} to \d+\.\d{3}: .*\),"
                     r"\nover \d+ of its requests and \d+ of the others\n", listing), listing
    assert roles(drafter(server, "promote")) == {"draft": ("standby", "0 %", "attached"), "good": ("serving", "100 %", "attached")}
    check({"good"})
    check({"draft"}, drafter="draft")  # a request that names it still gets it
    assert roles(drafter(server, "rollback"))["draft"][0] == "serving"
    check({"draft"})
    assert "it was taken back already" in drafter(server, "rollback", code=1)
    drafter(server, "unload", "good")
    drafter(server, "load", "good", "--share", "1")
    drafter(server, "promote")
    assert set(roles(drafter(server, "unload", "draft"))) == {"good"}
    check({"good"})
    assert "no other draft model serves" in drafter(server, "unload", "good", code=1)
    # The number of the model that is gone is used again.
    assert roles(drafter(server, "load", "noise", "--share", "1"))["noise"] == ("canary", "100 %", "attached")
    check({"noise"})
    assert set(roles(drafter(server, "unload", "noise"))) == {"good"}
    assert server.info().load.num_drafter_losses == 0


@pytest.mark.parametrize("mode", MODES)
def test_models_are_swapped_under_load(server, plain, mode):
    with concurrent.futures.ThreadPoolExecutor() as pool:
        outputs = pool.submit(server.generate_all, requests(**MODES[mode]) * 12, 8)
        harness.wait_until(lambda: server.info().load.num_running > 0, 10, "requests run")
        rounds = 0
        while not outputs.done() or rounds == 0:
            drafter(server, "load", "good", "--share", "0.5")
            drafter(server, "promote")
            drafter(server, "load", "noise", "--share", "0.3")
            drafter(server, "unload", "noise")
            drafter(server, "rollback")
            drafter(server, "unload", "good")
            rounds += 1
        assert [output.bytes for output in outputs.result(60)] == plain[mode] * 12
    assert server.info().load.num_drafter_losses == 0


def test_sampled_drafts_of_a_loaded_model_are_judged(server):
    drafter(server, "load", "good", "--share", "1")
    outputs = server.generate_all([(prompt, dict(max_tokens=60, temperature=1.0, draft_length=3)) for prompt in PROMPTS[:6]], 6)
    assert drafted_by(outputs) == {"good"}
    assert sum(output.completion.speculation.num_accepted_tokens for output in outputs) > 100
    assert server.info().load.num_ring_errors == 0


def test_a_killed_worker_loads_its_models_again(server, plain):
    drafter(server, "load", "good", "--share", "1")
    drafter(server, "promote")
    with concurrent.futures.ThreadPoolExecutor() as pool:
        outputs = pool.submit(server.generate_all, requests(**MODES["greedy"]) * 6, 8)
        harness.wait_until(lambda: server.info().load.num_running > 0, 10, "requests run")
        os.kill(server.child("tandem-draft"), signal.SIGKILL)
        assert [output.bytes for output in outputs.result(60)] == plain["greedy"] * 6
    both = {"draft": ("standby", "0 %", "attached"), "good": ("serving", "100 %", "attached")}
    harness.wait_until(lambda: roles(drafter(server, "list")) == both, 30, "both models are back")
    outputs = server.generate_all(requests(temperature=0, draft_length=3), 2)
    assert drafted_by(outputs) == {"good"}


@pytest.mark.parametrize("name, why", [
    ("missing", r'"missing" is not in --draft-folder, which holds broken, good, misfit, noise'),
    ("empty", r"config\.json"),
    ("broken", r"model\.safetensors"),
    ("misfit", r"vocabular"),
])
def test_a_model_that_does_not_work_is_refused_and_leaves_nothing(server, name, why):
    told = drafter(server, "load", name, code=1)
    assert re.search(why, told) and "was given up" in told, told
    assert set(roles(drafter(server, "list"))) == {"draft"}
    assert drafted_by(server.generate_all(requests(temperature=0, draft_length=3), 2)) == {"draft"}


def test_a_load_that_is_canceled_leaves_nothing(server):
    worker = server.child("tandem-draft")
    os.kill(worker, signal.SIGSTOP)  # so that it does not answer
    load = subprocess.Popen([str(harness.BINARY_DIR / "bin" / "tandem"), "drafter", "load", "good", "--connect", server.address],
                            stderr=subprocess.PIPE, text=True)
    try:
        harness.wait_until(lambda: "good" in roles(drafter(server, "list")), 10, "it is being loaded")
        role, share, state = roles(drafter(server, "list"))["good"]
        assert (role, share) == ("canary", "10 %") and state.startswith("loading"), state
        assert "good can draft at 0 of 1 worker pods" in drafter(server, "promote", code=1)
        time.sleep(0.5)  # the command waits by now
        load.send_signal(signal.SIGINT)
        assert load.wait(10) == 130
        assert "good was given up: the load was canceled" in load.stderr.read()
        assert set(roles(drafter(server, "list"))) == {"draft"}
    finally:
        os.kill(worker, signal.SIGCONT)
        load.kill()
        load.wait()
        load.stderr.close()
    harness.wait_until(lambda: roles(drafter(server, "list"))["draft"][2] == "attached", 30, "the worker goes on")
    assert drafted_by(server.generate_all(requests(temperature=0, draft_length=3), 2)) == {"draft"}


def test_models_that_stand_by_draft_while_no_other_can(server, plain, folder):
    shutil.copytree(harness.TALES_DRAFT, folder / "passing", dirs_exist_ok=True)
    drafter(server, "load", "passing", "--share", "1")
    drafter(server, "promote")
    shutil.rmtree(folder / "passing")
    os.kill(server.child("tandem-draft"), signal.SIGKILL)
    harness.wait_until(lambda: "cannot load passing" in roles(drafter(server, "list"))["passing"][2], 30, "it cannot come back")
    harness.wait_until(lambda: roles(drafter(server, "list"))["draft"][2] == "attached", 30, "the other one is back")
    outputs = server.generate_all(requests(temperature=0, draft_length=3), 2)
    assert [output.bytes for output in outputs] == plain["greedy"]
    assert drafted_by(outputs) == {"draft"}
    assert roles(drafter(server, "rollback"))["draft"] == ("serving", "100 %", "attached")
    drafter(server, "unload", "passing")


def test_changes_that_make_no_sense_are_refused(server):
    assert "there is no canary to promote" in drafter(server, "promote", code=1)
    assert "there is no promotion to take back" in drafter(server, "rollback", code=1)
    assert 'there is no draft model ""' in drafter(server, "unload", "", code=1)
    assert "is the name of a kind of drafter" in drafter(server, "load", "suffix", code=1)
    assert 'there is no draft model "other"' in drafter(server, "unload", "other", code=1)
    assert 'a draft model "draft" is there already' in drafter(server, "load", "draft", code=1)
    drafter(server, "load", "good")
    assert "there is a canary already" in drafter(server, "load", "noise", code=1)
    for arguments, complaint in [(["lod"], "did you mean load?"), ([], "is needed"), (["load"], "NAME"),
                                 (["load", "good", "--share", "0"], "--share"), (["list", "--share", "0.5"], "--share is for load")]:
        ended = harness.run_cli("drafter", *arguments, "--connect", server.address)
        assert ended.returncode == 2 and complaint in ended.stderr, ended.stderr
    assert "--connect ADDRESS" in harness.run_cli("drafter", "list").stderr


def test_without_a_folder_nothing_is_loaded(servers):
    server = servers(target=harness.TALES_TARGET, draft=harness.TALES_DRAFT)
    assert "it was started without --draft-folder" in drafter(server, "load", "good", code=1)
    plainly = servers(target=harness.TALES_TARGET, drafter="none")
    assert "no draft worker" in drafter(plainly, "load", "good", code=1)
    assert "this server has no draft model" in drafter(plainly, "list")
    ended = harness.run_cli("generate", "--target", str(harness.TALES_TARGET), "--draft", str(harness.TALES_DRAFT), "--draft-folder",
                            "/nowhere", "Once")
    assert ended.returncode != 0 and "--draft-folder: /nowhere is no folder" in ended.stderr


def test_only_admins_swap(tmp_path, folder):
    tokens = {}
    for role in ("client", "admin"):
        tokens[role] = tmp_path / role
        tokens[role].write_text(f"{role} {role}-token-0123456789\n")
        tokens[role].chmod(0o600)
    both = tmp_path / "both"
    both.write_text(tokens["client"].read_text() + tokens["admin"].read_text())
    both.chmod(0o600)
    server = harness.Server(tmp_path, target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, draft_folder=folder, token_file=both)
    try:
        assert "UNAUTHENTICATED" in drafter(server, "load", "good", code=1)
        assert "this method needs the token of an admin" in drafter(server, "load", "good", "--token-file", str(tokens["client"]), code=1)
        assert "attached" in drafter(server, "load", "good", "--token-file", str(tokens["admin"]))
    finally:
        server.stop()


def test_strangers_do_not_swap(tmp_path, folder):
    server = harness.Server(tmp_path, target=harness.TALES_TARGET, draft=harness.TALES_DRAFT, draft_folder=folder, listen="0.0.0.0:0",
                            environment={"TANDEM_INSECURE": "true"})
    try:
        assert "this method is for admins" in drafter(server, "load", "good", code=1)
    finally:
        server.stop()


def test_the_worker_counts_its_models(server):
    def num_models():
        return read_metric(server, "draft", r"tandem_worker_models\S*")

    assert num_models() == 1
    drafter(server, "load", "good")
    assert num_models() == 2
    drafter(server, "unload", "good")
    harness.wait_until(lambda: num_models() == 1, 10, "the model is unloaded")


def test_the_router_shows_the_shares(server):
    def shares():
        return [read_metric(server, "router", rf'tandem_draft_model_share.*[{{,]draft_model="{name}".*')
                for name in ("draft", "good")]

    harness.wait_until(lambda: shares() == [1, None], 10, "the model serves")
    drafter(server, "load", "good", "--share", "0.25")
    harness.wait_until(lambda: shares() == [0.75, 0.25], 10, "the canary has its share")
    drafter(server, "promote")
    harness.wait_until(lambda: shares() == [0, 1], 10, "it serves")
    drafter(server, "unload", "draft")
    assert "good" in roles(drafter(server, "list"))
    harness.wait_until(lambda: shares() == [0, 1], 10, "the other one is gone")
