"""Tests that `tandem bench` compares all drafters in one run, and swaps the heads for that."""

import json
import os
import re
import shutil
import subprocess

import pytest

import harness

MODELS = harness.EMBEDDED_TARGET.parent
KINDS = ("medusa", "blockwise", "eagle", "layer_skip", "pass")
FAST = ("--modes", "greedy", "--draft-lengths", "3", "--pairs", "1")


def bench(*arguments, code=0):
    done = subprocess.run([str(harness.BINARY_DIR / "bin" / "tandem"), "bench", *FAST, *map(str, arguments)], capture_output=True,
                          text=True, timeout=120, env={**os.environ, "TANDEM_MODELS": str(MODELS.parent)})
    assert done.returncode == code, done.stderr
    return done


def rows(tmp_path, *arguments):
    path = tmp_path / "bench.json"
    done = bench(*arguments, "--json", path)
    return json.loads(path.read_text())["rows"], done


@pytest.fixture
def folder(tmp_path):
    """A folder with two layers of EAGLE, Medusa heads, and heads without their weights."""
    folder = tmp_path / "heads"
    for name, kind in [("my-eagle", "eagle"), ("old-eagle", "eagle"), ("medusa", "medusa")]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).symlink_to(MODELS / kind)
    (folder / "broken").mkdir()
    (folder / "other" / "none").mkdir(parents=True)
    shutil.copy(MODELS / "pass" / "config.json", folder / "broken")
    return folder


def test_all_drafters_are_compared_in_one_run(tmp_path):
    found, done = rows(tmp_path, "--drafters", "all", "--max-tokens", 48)
    plain = [row for row in found if row["draft_length"] == 0]
    assert [row["heads"] for row in plain] == ["none", *KINDS]
    drafted = {row["drafter"]: row for row in found if row["draft_length"] != 0}
    assert list(drafted) == ["model", "suffix", "ngram", "recycling", "auto", *KINDS]
    for kind in KINDS:
        row = drafted[kind]
        assert row["heads"] == kind
        assert row["tokens_per_pass"] > 1 and row["drafted_tokens"] > 0, row
        assert row["speedup"] > 0 and row["cost_ratio"] > 0 and row["limit"] > 0
        assert 0 < row["alpha_per_position"][0] <= 1
        assert row["predicted_speedup_theorem_3_8"] > 0 and row["operations_factor_theorem_3_11"] is None
    assert len(re.findall(r"^ greedy +\S+ +3 ", done.stdout, re.MULTILINE)) == 2 * len(drafted)  # the table, and the positions
    assert "bench: 100 %" in done.stderr


def test_several_heads_are_given_one_by_one(tmp_path, folder):
    found, done = rows(tmp_path, "--heads", f"{MODELS / 'medusa'},{folder / 'my-eagle'}", "--max-tokens", 48)
    assert [(row["drafter"], row["heads"]) for row in found if row["draft_length"] != 0] == [
        ("auto", "none"), ("medusa", "medusa"), ("eagle", "my-eagle")]
    assert all(row["tokens_per_pass"] > 1 for row in found if row["drafter"] in ("medusa", "eagle"))
    assert "eagle (my-eagle)" in done.stdout


def test_one_kind_of_several_heads_is_measured_with_its_own_heads(tmp_path, folder):
    """Medusa's heads are loaded last, to see what they are, and are then not those that are measured."""
    found, _ = rows(tmp_path, "--heads", f"{folder / 'my-eagle'},{MODELS / 'medusa'}", "--drafters", "eagle", "--max-tokens", 48)
    assert [(row["drafter"], row["heads"]) for row in found if row["draft_length"] != 0] == [("eagle", "my-eagle")]
    assert found[-1]["tokens_per_pass"] > 1


def test_a_folder_of_heads_is_compared_and_what_does_not_work_is_left_out(tmp_path, folder):
    found, done = rows(tmp_path, "--heads-folder", folder, "--drafters", "eagle", "--max-tokens", 8)
    assert [(row["drafter"], row["heads"]) for row in found if row["draft_length"] != 0] == [
        ("eagle", "my-eagle"), ("eagle", "old-eagle")]
    assert re.search(r"the heads broken cannot be used: \S+/broken: has neither model.safetensors .*; they are left out", done.stderr)


@pytest.mark.parametrize("arguments, why", [
    (["--drafters", "nothing"], r'--drafters: got "nothing", allowed: model, suffix'),
    (["--heads-folder", "FOLDER", "--drafters", "pass"],
     r"--drafters: got pass, but no heads of this kind are among those of --heads-folder \S+, which has "
     r"medusa \(medusa\), my-eagle \(eagle\), old-eagle \(eagle\)"),
    (["--heads-folder", "FOLDER/none", "--drafters", "all"], r"--heads-folder: \S+/none is no folder"),
    (["--heads-folder", "FOLDER/broken", "--drafters", "all"], r"--heads-folder \S+/broken: has no folder with a config\.json"),
    (["--heads", "FOLDER/medusa,FOLDER/none"], r'--heads: got "\S+/none", which is no folder'),
    (["--heads", "FOLDER/medusa,FOLDER/other/none"], r'--heads: got "\S+/other/none", which is called none \(give'),
    (["--heads", "FOLDER/medusa,FOLDER/medusa/"], r"--heads: \S+/medusa/ is given twice"),
    (["--heads", "FOLDER/medusa,FOLDER/broken"], r"--heads: the heads broken cannot be used: \S+/heads/broken: has neither model"),
    (["--heads", f"FOLDER/medusa,{harness.EMBEDDED_DRAFT}"],
     r"--heads: the heads draft cannot be used: \S+/tales/draft/config.json: hidden_size is 160, the target has 512"),
    (["--heads", "FOLDER/medusa,FOLDER/my-eagle", "--heads-folder", "FOLDER"], r"allowed: one of the two flags"),
    (["--target", str(harness.EMBEDDED_TARGET), "--drafters", "pass"], r'the drafter "pass" needs heads \(--heads DIR\)'),
])
def test_mistakes_are_found_before_anything_is_measured(folder, arguments, why):
    done = bench(*[str(argument).replace("FOLDER", str(folder)) for argument in arguments], code=2)
    assert re.search(why, done.stderr), done.stderr
    assert "run 1" not in done.stderr and done.stdout == ""


def test_a_running_server_keeps_its_heads(servers, tmp_path):
    server = servers(target=harness.EMBEDDED_TARGET, drafter="none", heads=MODELS / "medusa", max_slots=2)
    found, _ = rows(tmp_path, "--connect", server.address, "--drafters", "all", "--max-tokens", 8)
    assert {row["drafter"] for row in found} & set(KINDS) == {"medusa"} and "heads" not in found[0]
    refused = bench("--connect", server.address, "--drafters", "pass", code=1)
    assert re.search(r'speculation.drafter: got "pass", allowed: "medusa", .* \(the server has other heads\)', refused.stderr)
