"""bench/gpu.sh over the shim: its steps work, and find what is wrong."""

import argparse
import json
import os
import subprocess
import sys
import time

import pytest

import harness

SCRIPT = harness.SOURCE_DIR / "bench" / "gpu.py"
sys.path.insert(0, str(SCRIPT.parent))

import gpu  # noqa: E402


def gpu_bench(*arguments):
    return subprocess.run([sys.executable, "-B", str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "TANDEM_BINARY_DIR": str(harness.BINARY_DIR)})


@pytest.fixture
def bench(tmp_path):
    return gpu.Bench(argparse.Namespace(shim=True, gpu=0, commit=None, python=None), tmp_path)


def executable(path, text):
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_every_step_runs_over_the_shim(tmp_path):
    out = tmp_path / "gpu.json"
    done = gpu_bench("--shim", "--out", str(out), "--commit", "abc123")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(out.read_text())
    steps = report["steps"]
    assert {name for name, step in steps.items() if step["status"] == "passed"} == {"agreement", "exactness", "kills", "bandwidth",
                                                                                    "end_to_end"}, done.stdout
    assert {name for name, step in steps.items() if step["status"] == "skipped"} == {"kernels", "sanitizer", "assisted"}
    assert steps["agreement"]["compared"] >= 10

    assert report["machine"]["commit"] == "abc123"
    assert report["machine"]["device"] == "SIMT shim"
    model = steps["bandwidth"]["models"]["3B"]
    assert model["shape"]["vocab_size"] == 64 and model["shape"]["hidden_size"] == 16
    assert model["weight_bytes"] > 64 * 16 and model["context"] == 4

    handed_over = steps["end_to_end"]["ring_bytes"]
    assert handed_over["cuda_ipc"] > 0
    assert handed_over["shm"] == handed_over["inline"] == 0

    figures = {figure["figure"]: figure for step in steps.values() for figure in step.get("figures", [])}
    goals = {name: figure["goal"] for name, figure in figures.items() if figure["goal"] is not None}
    assert goals == {"decode of the 3B shape, share of copy bandwidth": "at least 0.85",
                     "decode of the 1B shape, share of copy bandwidth": "at least 0.8",
                     "8 rows over one, 3B shape": "at most 1.15", "8 rows over one, 1B shape": "at most 1.15",
                     **{f"speedup over its prediction, {mode}, K = 2": "0.95 to 1.05" for mode in ("greedy", "sampled")},
                     **{f"router, messages and transfer, share of a round, {mode}, K = 2": "at most 0.08" for mode in ("greedy", "sampled")}}
    for figure in figures.values():
        assert figure["value"] is None and figure["met"] is None
    assert done.stdout.count("not judged ") >= len(goals)
    assert f"goals: 0 met, 0 MISSED, {len(goals)} not judged" in done.stdout
    assert "skipped: no speed is measured over the shim" in done.stdout


def test_agreement_and_exactness_can_fail(bench, monkeypatch):
    cluster = bench.cluster
    monkeypatch.setattr(bench, "cluster", lambda backend: cluster(backend, bench.pair[::-1] if backend == "cpu" else bench.pair))
    with pytest.raises(gpu.Failed, match="differ where the two best"):
        gpu.agreement(bench)
    monkeypatch.setattr(bench, "cluster", lambda _: cluster("cpu"))
    with pytest.raises(gpu.Failed, match="transport is '(shm|inline)'"):
        gpu.exactness(bench)


def test_log_probs_that_cross_to_the_host_are_seen(bench, monkeypatch):
    cluster = bench.cluster
    monkeypatch.setattr(bench, "cluster", lambda _, pair: cluster("cpu", pair))
    with pytest.raises(gpu.Failed, match="went through the host") as failure:
        gpu.end_to_end(bench)
    assert failure.value.found["figures"]


def test_missed_goals_are_told_from_met_ones_and_are_no_failure(bench, capsys):
    bench.shim = False
    figures = [gpu.figure(bench, "a", 0.9, least=0.85), gpu.figure(bench, "b", 1.2, most=1.15, note="why"),
               gpu.figure(bench, "c", 0.94, 0.95, 1.05), gpu.figure(bench, "d", None, most=1), gpu.figure(bench, "e", 7)]
    assert [figure["met"] for figure in figures] == [True, False, False, None, None]
    result = gpu.outcome(bench, lambda _: {"figures": figures}, 1)
    assert result["status"] == "passed"
    gpu.show("step", "what it does", {**result, "seconds": 1})
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["met", "a:"], ["MISSED", "b:"], ["MISSED", "c:"], ["not", "judged"], ["no", "goal"]]
    assert gpu.summary({"step": result}) == "1 passed, 0 failed, 0 skipped; goals: 1 met, 2 MISSED, 1 not judged"


def test_figures_come_from_what_tandem_bench_reports(bench):
    bench.shim = False
    bench.draft_lengths = [2, 4, 8]
    bench.passes = {"3B": {1: 1.6e-3, 5: 1.7e-3}, "1B": {1: 0.7e-3}}
    row = {"mode": "greedy", "draft_length": 4, "speedup": 1.3, "speedup_95_percent": [1.25, 1.35], "predicted_speedup_measured_costs": 1.25,
           "predicted_speedup_theorem_3_8": 1.4, "alpha": 0.8,
           "round_seconds": {"draft": 3e-3, "transfer": 0.1e-3, "verify": 1.8e-3, "router": 0.1e-3}}
    plain = {"mode": "greedy", "draft_length": 0}
    speedup, overhead, beyond = gpu.round_figures(bench, [plain, row])
    assert speedup["value"] == pytest.approx(1.04) and speedup["met"]
    assert "Theorem 3.8: 1.40" in speedup["note"]
    assert overhead["value"] == pytest.approx(0.04) and overhead["met"]
    assert beyond["value"] == pytest.approx(0.1) and beyond["goal"] is None
    assert gpu.round_figures(bench, [{**row, "draft_length": 2}])[1]["goal"] is None


def test_steps_that_break_and_steps_without_time(bench):
    def raises(error):
        def step(_):
            raise error
        return step

    for error in (FileNotFoundError("no tool"), AssertionError("not ready"), subprocess.TimeoutExpired("tool", 3),
                  subprocess.CalledProcessError(1, "tool")):
        result = gpu.outcome(bench, raises(error), 1)
        assert result["status"] == "failed" and result["why"].startswith(type(error).__name__)
    assert gpu.outcome(bench, raises(gpu.Failed("wrong", seen=3)), 1) == {"status": "failed", "why": "wrong", "seen": 3}
    assert gpu.outcome(bench, raises(gpu.Skipped("not here")), 1) == {"status": "skipped", "why": "not here"}
    bench.deadline = time.monotonic() + 10
    assert gpu.outcome(bench, lambda _: {}, 60) == {"status": "skipped", "why": "out of time"}
    with pytest.raises(subprocess.TimeoutExpired):
        gpu.run(["sleep", "60"], timeout=0.1)

    done = gpu_bench("--shim", "--limit", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("skipped: out of time") == len(gpu.STEPS)


TRANSFORMERS = """#!{python}
import json, sys
print(json.dumps({{"transformers": "none"}}), flush=True)
print(json.dumps({{"ready": True}}), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    print(json.dumps({{"token_ids": [1] * request["num_tokens"], "seconds": 0.5}}), flush=True)
"""


def test_transformers_are_measured_in_turns(bench, tmp_path):
    bench.python = executable(tmp_path / "python", TRANSFORMERS.format(python=sys.executable))
    found = gpu.assisted(bench)
    assert found["ratio"]["pairs"] == len(found["equal_tokens"]) == gpu.ASSISTED_PAIRS
    assert found["tokens_per_second"]["transformers"] == found["tokens_per_second"]["transformers_plain"] == 2 * bench.num_tokens
    assert found["tokens_per_second"]["tandem"] > 0
    (figure,) = found["figures"]
    assert figure["goal"] == "at least 3" and figure["met"] is None


def test_without_transformers_they_are_skipped(bench, tmp_path):
    bench.python = sys.executable
    with pytest.raises(gpu.Skipped, match="transformers is not installed"):
        gpu.assisted(bench)
    bench.python = str(tmp_path / "none")
    with pytest.raises(gpu.Skipped, match="transformers is not installed: there is no"):
        gpu.assisted(bench)
    bench.python = executable(tmp_path / "python", "#!/bin/sh\necho 'it broke' >&2\nexit 1\n")
    with pytest.raises(gpu.Failed, match="ended with 1: it broke"):
        gpu.assisted(bench)


# Runs the program and says of it what it is told to.
SANITIZER = """#!/bin/bash
while [[ "$1" == --* ]]; do
  [ "$1" != --log-file ] || log="$2"
  shift 2
done
"$@"
code=$?
[ -z "$log" ] || echo "========= ERROR SUMMARY: {errors} errors" >"$log"
[ {errors} = 0 ] || [ -n "$log" ] || exit 9
exit $code
"""


def test_the_sanitizer_runs_tests_and_workers(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "SANITIZED", [("memcheck", "layers", "RmsNorm*")])
    bench.sanitizer = executable(tmp_path / "sanitizer", SANITIZER.format(errors=0))
    assert gpu.sanitizer(bench) == {"reports": {"memcheck of layers": "no finding", "memcheck of a generate": "no finding"}}
    executable(bench.sanitizer, SANITIZER.format(errors=1))
    with pytest.raises(gpu.Failed, match="memcheck of layers"):
        gpu.sanitizer(bench)
    with pytest.raises(gpu.Failed, match="memcheck of a generate, tandem-.*1 errors"):
        gpu.check_generate(bench)
    executable(bench.sanitizer, "#!/bin/sh\nsleep 60\n")
    bench.deadline = time.monotonic() + 1
    with pytest.raises(gpu.Skipped, match="out of time: memcheck of layers, memcheck of a generate"):
        gpu.sanitizer(bench)


def test_the_script_names_every_step():
    done = subprocess.run([SCRIPT.with_suffix(".sh"), "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    for step in gpu.STEPS:
        assert step.__name__ in done.stdout


def test_the_script_refuses_binaries_that_are_none(tmp_path):
    done = subprocess.run([SCRIPT.with_suffix(".sh"), "--binaries", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no bin/tandem" in done.stderr


def test_without_a_gpu_it_says_so():
    if not (harness.BINARY_DIR / "bin" / "bench_device").exists():
        pytest.skip("built without CUDA")
    done = gpu_bench("--only", "kernels")
    if "skipped: no GPU" not in done.stderr:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 1
