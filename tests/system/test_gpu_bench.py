"""Tests bench/gpu.sh over the shim: its steps work and find planted faults."""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import types

import grpc
import pytest

import harness

SCRIPT = harness.SOURCE_DIR / "bench" / "gpu.py"
sys.path.insert(0, str(SCRIPT.parent))

import gpu  # noqa: E402


def gpu_bench(*arguments, binaries=harness.BINARY_DIR):
    return subprocess.run([sys.executable, "-B", str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "TANDEM_BINARY_DIR": str(binaries)})


@pytest.fixture
def bench(tmp_path):
    return gpu.Bench(argparse.Namespace(shim=True, gpu=0, commit=None, python=None), tmp_path)


def executable(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_every_step_runs_over_the_shim(tmp_path):
    out = tmp_path / "gpu.json"
    done = gpu_bench("--shim", "--out", str(out), "--commit", "abc123")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(out.read_text())
    steps = report["steps"]
    assert {name for name, step in steps.items() if step["status"] == "passed"} == {"agreement", "exactness", "heads", "kills",
                                                                                    "bandwidth", "prompts", "sampling",
                                                                                    "end_to_end", "trees"}, done.stdout
    assert {name for name, step in steps.items() if step["status"] == "skipped"} == {"kernels", "sanitizer", "assisted"}
    assert steps["agreement"]["compared"] >= 10 and steps["heads"]["compared"] == 48

    assert report["machine"]["commit"] == "abc123"
    assert report["machine"]["device"] == "SIMT shim"
    model = steps["bandwidth"]["models"]["3B"]
    assert model["shape"]["vocab_size"] == 64 and model["shape"]["hidden_size"] == 16
    assert model["weight_bytes"] > 64 * 16 and model["context"] == 4
    assert [each["rows"] for each in steps["prompts"]["prompts"]] == [5, 9] and set(steps["prompts"]["contexts"]) == {"4", "20"}
    assert [each["rows"] for each in steps["sampling"]["sampling"]] == [1, 10]

    handed_over = steps["end_to_end"]["ring_bytes"]
    assert handed_over["cuda_ipc"] > 0
    assert handed_over["shm"] == handed_over["inline"] == 0
    assert steps["end_to_end"]["bench"]["max_tokens"] == 6
    assert {row["pairs"] for row in steps["end_to_end"]["bench"]["rows"] if row["draft_length"] != 0} == {1}

    figures = {figure["figure"]: figure for step in steps.values() for figure in step.get("figures", [])}
    goals = {name: figure["goal"] for name, figure in figures.items() if figure["goal"] is not None}
    modes = [name for name in goals if name.startswith("seconds of 10 rows, ")]
    assert len(modes) >= 11 and {goals[name] for name in modes} == {"at most 6e-05"}
    others = {name: goal for name, goal in goals.items() if name not in modes}
    assert others == {"decode of the 3B shape, share of copy bandwidth": "at least 0.85",
                      "decode of the 1B shape, share of copy bandwidth": "at least 0.8",
                      "8 rows over one, 3B shape": "at most 1.1", "8 rows over one, 1B shape": "at most 1.1",
                      **{f"speedup over its prediction, {mode}, K = 2": "0.95 to 1.05" for mode in ("greedy", "sampled")},
                      **{f"router, messages and transfer, share of a round, {mode}, K = 2": "at most 0.08"
                         for mode in ("greedy", "sampled")}}
    for figure in figures.values():
        assert figure["value"] is None and figure["met"] is None
    assert done.stdout.count("not judged ") >= len(goals)
    assert f"goals: 0 met, 0 MISSED, {len(goals)} not judged" in done.stdout
    assert "skipped: no speed is measured over the shim" in done.stdout


def test_agreement_and_exactness_can_fail(bench, monkeypatch):
    cluster = bench.cluster
    monkeypatch.setattr(bench, "cluster", lambda backend: cluster(backend, bench.pair[::-1] if backend == "cpu" else bench.pair))
    with pytest.raises(gpu.Failed, match="neither the CPU's choice nor a runner-up"):
        gpu.agreement(bench, {})
    monkeypatch.setattr(bench, "cluster", lambda _: cluster("cpu"))
    with pytest.raises(gpu.Failed, match="transport is '(shm|inline)'"):
        gpu.exactness(bench, {})


@pytest.mark.parametrize("said, gap, near_ties", [(5, 0.5, 0), (5, 0.01, 0), (6, 0.01, 10), (6, 0.5, None), (7, 0.01, None)])
def test_at_a_near_tie_the_runner_up_agrees_and_no_other(bench, monkeypatch, said, gap, near_ties):
    def generate(worker, prompt, max_tokens, **options):
        if worker == "cuda":
            return types.SimpleNamespace(token_ids=[said])
        top = [types.SimpleNamespace(token_id=5, logprob=-1.0), types.SimpleNamespace(token_id=6, logprob=-1.0 - gap)]
        return types.SimpleNamespace(token_ids=[5] * max_tokens, logprobs=[types.SimpleNamespace(top=top)] * max_tokens)

    bench.prompts, bench.num_tokens = [[1, 2]], 10
    monkeypatch.setattr(bench, "generate", generate)
    monkeypatch.setattr(bench, "cluster", lambda backend: contextlib.nullcontext(types.SimpleNamespace(routers=[backend])))
    found = {}
    if near_ties is None:
        with pytest.raises(gpu.Failed, match="10 of 10 are neither"):
            gpu.agreement(bench, found)
        assert {wrong["token_id"] for wrong in found["wrong"]} == {said}
    else:
        gpu.agreement(bench, found)
        assert found["compared"] == 10 and found["near_ties"] == near_ties and found["wrong"] == []


def test_log_probs_that_cross_to_the_host_are_noticed(bench, monkeypatch):
    cluster = bench.cluster
    monkeypatch.setattr(bench, "cluster", lambda _, pair: cluster("cpu", pair))
    found = {}
    with pytest.raises(gpu.Failed, match="went through the host"):
        gpu.end_to_end(bench, found)
    assert found["figures"]


def test_the_end_to_end_workload_fits_the_available_time(bench):
    bench.draft_lengths, bench.num_pairs, bench.run_tokens = [2, 4, 8], gpu.NUM_PAIRS, gpu.RUN_TOKENS
    cells = 8
    for tokens, want in [(10**6, (20, 96)), (21 * 96, (20, 96)), (10 * 96, (9, 96)), (7 * 96, (6, 96)), (7 * 40, (6, 40)),
                         (7 * 24, (6, 24))]:
        pairs, run_tokens = gpu.workload(bench, 1e-3, 1e-3 * cells * (tokens + 0.5))
        assert (pairs, run_tokens) == want
        assert (pairs + 1) * run_tokens <= tokens
    with pytest.raises(gpu.Skipped, match="out of time: a token takes 1 ms, and 6 pairs of 24 tokens more than"):
        gpu.workload(bench, 1e-3, 1e-3 * cells * (7 * 24 - 0.5))


def test_a_gpu_that_is_too_slow_for_the_smallest_workload_is_not_measured(bench, monkeypatch):
    monkeypatch.setattr(gpu, "token_seconds", lambda *_: 1000.0)
    with pytest.raises(gpu.Skipped, match="out of time: a token takes"):
        gpu.end_to_end(bench, {})


def test_missed_goals_are_shown_and_are_no_failures(bench, capsys):
    bench.shim = False
    figures = [gpu.figure(bench, "a", 0.9, least=0.85), gpu.figure(bench, "b", 1.2, most=1.15, note="why"),
               gpu.figure(bench, "c", 0.94, 0.95, 1.05), gpu.figure(bench, "d", None, most=1), gpu.figure(bench, "e", 7)]
    assert [figure["met"] for figure in figures] == [True, False, False, None, None]
    result = gpu.outcome(bench, lambda _, found: found.update(figures=figures), 1)
    assert result["status"] == "passed"
    gpu.show("step", "what it does", {**result, "seconds": 1})
    assert [line.split()[:2] for line in capsys.readouterr().out.splitlines()[1:]] == [
        ["met", "a:"], ["MISSED", "b:"], ["MISSED", "c:"], ["not", "judged"], ["no", "goal"]]
    assert gpu.summary({"step": result}) == "1 passed, 0 failed, 0 skipped; goals: 1 met, 2 MISSED, 1 not judged"


def test_figures_come_from_the_report_of_tandem_bench(bench):
    bench.shim = False
    bench.draft_lengths = [2, 4, 8]
    bench.passes = {"3B": {1: 1.6e-3, 5: 1.7e-3}, "1B": {1: 0.7e-3}}  # a round of K = 4: 4.5 ms
    row = {"mode": "greedy", "draft_length": 4, "speedup": 1.3, "speedup_95_percent": [1.25, 1.35],
           "predicted_speedup_measured_costs": 1.25, "predicted_speedup_theorem_3_8": 1.4, "alpha": 0.8,
           "round_seconds": {"draft": 3e-3, "transfer": 0.1e-3, "verify": 1.8e-3, "router": 0.1e-3}}
    plain = {"mode": "greedy", "draft_length": 0}
    speedup, overhead, beyond, over_passes = gpu.round_figures(bench, [plain, row])
    assert speedup["value"] == pytest.approx(1.04) and speedup["met"]
    assert "Theorem 3.8: 1.40" in speedup["note"]
    assert overhead["value"] == pytest.approx(0.04) and overhead["met"]
    assert beyond["value"] == pytest.approx(0.1) and beyond["goal"] is None
    tokens = 1 + 0.8 + 0.64 + 0.512 + 0.4096
    assert over_passes["value"] == pytest.approx(1.3 / (tokens * 1.6 / 4.5)) and over_passes["goal"] is None
    assert over_passes["note"] == "predicted 1.20"
    assert gpu.round_figures(bench, [{**row, "draft_length": 2}])[1]["goal"] is None


def step_that_raises(error):
    def step(_, found):
        found["seen"] = 3
        raise error

    return step


class DeadlineExceeded(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.DEADLINE_EXCEEDED


class Unavailable(grpc.RpcError):
    def code(self):
        return grpc.StatusCode.UNAVAILABLE


def test_steps_that_break_and_steps_without_time(bench):
    for error in (FileNotFoundError("no tool"), AssertionError("not ready"), subprocess.CalledProcessError(1, "tool"), Unavailable()):
        result = gpu.outcome(bench, step_that_raises(error), 1)
        assert result == {"status": "failed", "why": f"{type(error).__name__}: {error}", "seen": 3}
    assert gpu.outcome(bench, step_that_raises(gpu.Failed("wrong")), 1) == {"status": "failed", "why": "wrong", "seen": 3}
    assert gpu.outcome(bench, step_that_raises(gpu.Skipped("not here")), 1) == {"status": "skipped", "why": "not here", "seen": 3}
    bench.deadline = time.monotonic() + 10
    assert gpu.outcome(bench, lambda *_: None, 60) == {"status": "skipped", "why": "out of time"}
    with pytest.raises(subprocess.TimeoutExpired):
        gpu.run(["sleep", "60"], timeout=0.1)

    done = gpu_bench("--shim", "--limit", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("skipped: out of time") == len(gpu.STEPS)


def test_a_short_limit_takes_time_from_figures_and_not_from_checks():
    selected = [(gpu.kernels, 90), (gpu.exactness, 20), (gpu.bandwidth, 50), (gpu.trees, 70)]
    assert gpu.seconds_reserved(selected, 500) == [140, 120, 70, 0]
    assert gpu.seconds_reserved(selected, 150) == [60, 40, 70, 0]
    assert gpu.seconds_reserved(selected, 50) == [20, 0, 70, 0]
    assert gpu.CHECKS < set(gpu.STEPS)


def test_a_step_that_does_not_end_is_skipped_with_its_reason(bench):
    for error in (subprocess.TimeoutExpired("tool", 3), DeadlineExceeded()):
        result = gpu.outcome(bench, step_that_raises(error), 60)
        assert result["status"] == "skipped" and result["seen"] == 3
        assert result["why"].startswith(f"out of time: not done after 0 s ({type(error).__name__}")


def test_an_error_after_the_deadline_is_out_of_time_and_a_failure_stays_one(bench):
    def step_that_is_late(error):
        def step(_, found):
            bench.deadline = time.monotonic()
            raise error

        return step

    result = gpu.outcome(bench, step_that_is_late(AssertionError("not ready")), 60)
    assert result["status"] == "skipped" and "AssertionError: not ready" in result["why"]
    bench.deadline = time.monotonic() + 60
    assert gpu.outcome(bench, step_that_is_late(gpu.Failed("wrong")), 60) == {"status": "failed", "why": "wrong"}


def test_a_small_workload_that_does_not_end_in_its_time_is_a_failure(bench, monkeypatch):
    assert gpu.SMALL == {gpu.agreement, gpu.exactness, gpu.heads, gpu.kills}
    step = step_that_raises(DeadlineExceeded())
    monkeypatch.setattr(gpu, "SMALL", {step})
    bench.deadline = time.monotonic() + 59
    result = gpu.outcome(bench, step, 60)
    assert result["status"] == "failed" and result["why"].startswith("out of time: not done after")
    bench.deadline = time.monotonic() + 40  # earlier steps used some of its share, so its lateness proves nothing
    assert gpu.outcome(bench, step, 60)["status"] == "skipped"


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
    found = {}
    gpu.assisted(bench, found)
    assert found["ratio"]["pairs"] == len(found["equal_tokens"]) == gpu.ASSISTED_PAIRS
    assert found["tokens_per_second"]["transformers"] == found["tokens_per_second"]["transformers_plain"] == 2 * bench.num_tokens
    assert found["tokens_per_second"]["tandem"] > 0
    (figure,) = found["figures"]
    assert figure["goal"] == "at least 3" and figure["met"] is None


def test_without_transformers_they_are_skipped(bench, tmp_path):
    bench.python = sys.executable
    with pytest.raises(gpu.Skipped, match="transformers is not installed"):
        gpu.assisted(bench, {})
    bench.python = str(tmp_path / "none")
    with pytest.raises(gpu.Skipped, match="transformers is not installed: there is no"):
        gpu.assisted(bench, {})
    bench.python = executable(tmp_path / "python", "#!/bin/sh\necho 'it broke' >&2\nexit 1\n")
    with pytest.raises(gpu.Failed, match="ended with 1: it broke"):
        gpu.assisted(bench, {})
    executable(bench.python, "#!/bin/sh\nexec sleep 60\n")
    bench.deadline = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        gpu.assisted(bench, {})


# Runs the program, and writes the given report into its log if there is one.
SANITIZER = """#!/bin/bash
log=/dev/stdout
while [[ "$1" == --* ]]; do
  [ "$1" != --log-file ] || log="$2"
  shift 2
done
"$@"
code=$?
echo "========= {says}" >"$log"
[ {code} = 0 ] || [ "$log" != /dev/stdout ] || exit {code}
exit $code
"""
CLEAN = dict(says="ERROR SUMMARY: 0 errors", code=0)
NOT_SUPPORTED = "Error: Device not supported. Please refer to the documentation"


def test_the_sanitizer_runs_tests_and_workers(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "SANITIZED", [("memcheck", "layers", "RmsNorm*")])
    bench.sanitizer = executable(tmp_path / "sanitizer", SANITIZER.format(**CLEAN))
    found = {}
    gpu.sanitizer(bench, found)
    assert found == {"reports": {"memcheck of layers": "no finding", "memcheck of a generate": "no finding"}}
    executable(bench.sanitizer, SANITIZER.format(says="ERROR SUMMARY: 1 errors", code=9))
    with pytest.raises(gpu.Failed, match="memcheck of layers"):
        gpu.sanitizer(bench, {})
    with pytest.raises(gpu.Failed, match="memcheck of a generate, tandem-.*1 errors"):
        gpu.watch_generate(bench)


def test_a_filter_without_any_test_is_an_error(bench, tmp_path):
    bench.sanitizer = executable(tmp_path / "sanitizer", SANITIZER.format(**CLEAN))
    assert gpu.watch_tests(bench, "memcheck", "layers", "RmsNorm*") == "no finding"
    assert gpu.watch_tests(bench, "memcheck", "layers", "NoSuchTest*").startswith("did not run, exit code 0: ")


PASSED, SKIPPED_TEST = "[  PASSED  ] 3 tests.", "[  SKIPPED ] Layers.Test (0 ms)"
RUNNING = "[==========] Running 3 tests from 1 test suite."


@pytest.mark.parametrize("code, lines, report", [
    (0, [PASSED], "no finding"),
    (0, ["========= ERROR SUMMARY: 0 errors"], "did not run, exit code 0"),
    (0, [SKIPPED_TEST, "[  PASSED  ] 0 tests."], "did not run, exit code 0"),
    (0, [SKIPPED_TEST, PASSED], "did not run, exit code 0"),
    (0, [PASSED, "========= Error: Target application terminated before first instrumented API call"],
     "did not run: ========= Error: Target"),
    (9, [PASSED, f"========= {NOT_SUPPORTED}", "========= ERROR SUMMARY: 2 errors"], f"did not run: ========= {NOT_SUPPORTED}"),
    (1, [f"========= {NOT_SUPPORTED}", RUNNING, "[  FAILED  ] 1 test."], f"did not run: ========= {NOT_SUPPORTED}"),
    (127, ["libsanitizer-collection.so: not found"], "did not run, exit code 127: libsanitizer-collection.so: not found"),
    (9, [RUNNING, PASSED, "========= ERROR SUMMARY: 1 error"], None),
    (1, [RUNNING, "[  FAILED  ] 1 test."], None),
    (134, [RUNNING], None),
])
def test_a_finding_differs_from_a_failure_and_from_a_tool_that_does_not_run(bench, tmp_path, code, lines, report):
    bench.tests = tmp_path
    executable(tmp_path / "layers_simt_test", "")
    (tmp_path / "said").write_text("\n".join(lines) + "\n")
    bench.sanitizer = executable(tmp_path / "sanitizer", f'#!/bin/sh\ncat "{tmp_path}/said"\nexit {code}\n')
    if report is None:
        with pytest.raises(gpu.Failed, match=f"memcheck of layers, exit code {code}"):
            gpu.watch_tests(bench, "memcheck", "layers", "*")
    else:
        assert gpu.watch_tests(bench, "memcheck", "layers", "*").startswith(report)


def test_a_sanitizer_that_cannot_watch_workers_finds_nothing(bench, tmp_path):
    bench.sanitizer = executable(tmp_path / "sanitizer", SANITIZER.format(says=f"{NOT_SUPPORTED}\nERROR SUMMARY: 2 errors", code=9))
    assert gpu.watch_generate(bench) == f"did not run: ========= {NOT_SUPPORTED}"
    executable(bench.sanitizer, SANITIZER.format(says="", code=0))
    assert gpu.watch_generate(bench).startswith("did not run, tandem-")
    executable(bench.sanitizer, "#!/bin/sh\necho 'no such library' >&2\nexit 127\n")
    for log in tmp_path.glob("*.memcheck"):
        log.unlink()
    assert "no such library" in gpu.watch_generate(bench)


def test_programs_that_the_sanitizer_did_not_watch_are_skipped_with_its_message(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "SANITIZED", [("memcheck", "layers", "RmsNorm*")])
    monkeypatch.setattr(gpu, "watch_generate", lambda _: "no finding")
    bench.sanitizer = executable(tmp_path / "sanitizer", SANITIZER.format(says=NOT_SUPPORTED, code=9))
    found = {}
    with pytest.raises(gpu.Skipped, match="memcheck of layers: did not run: ========= Error: Device not supported.*; the others without"):
        gpu.sanitizer(bench, found)
    assert found["reports"]["memcheck of a generate"] == "no finding"
    executable(bench.sanitizer, "#!/bin/sh\nsleep 60\n")
    bench.deadline = time.monotonic() + 1
    with pytest.raises(gpu.Skipped, match="memcheck of layers: out of time: not done after 1 s; memcheck of a generate: out of time"):
        gpu.sanitizer(bench, {})


# Passes if it sees the right GPU.
SEES = """#!/bin/sh
if [ "$CUDA_VISIBLE_DEVICES" = "{gpu}" ]; then
  echo "[  PASSED  ] 1 test."
else
  echo "it sees $CUDA_VISIBLE_DEVICES"
  exit 1
fi
"""


@pytest.mark.parametrize("visible, number, name", [(None, 0, "0"), (None, 1, "1"), ("3,GPU-abc", 1, "GPU-abc"), ("3,GPU-abc", 0, "3")])
def test_test_programs_see_the_chosen_gpu(bench, tmp_path, monkeypatch, visible, number, name):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    bench.shim, bench.gpu, bench.tests = False, number, tmp_path
    executable(tmp_path / "layers_cuda_test", SEES.format(gpu=name))
    bench.sanitizer = executable(tmp_path / "sanitizer", SANITIZER.format(**CLEAN))
    found = {}
    gpu.kernels(bench, found)
    assert set(found["tests"]) == {"layers_cuda_test"}
    assert gpu.watch_tests(bench, "memcheck", "layers", "*") == "no finding"
    assert bench.nvidia_smi("name")[:3] == ["nvidia-smi", "-i", name]


# Prints clocks like nvidia-smi, until it is ended.
CLOCKS = """#!/bin/sh
echo "$@" > {folder}/asked
printf '345, 2619\\n1980, 2619\\n[N/A], [N/A]\\n1755, 2600\\n'
touch {folder}/printed
exec sleep 60
"""


def test_clocks_are_the_lowest_the_median_and_the_highest_readings(bench, tmp_path, monkeypatch):
    executable(tmp_path / "nvidia-smi", CLOCKS.format(folder=tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    bench.shim, bench.gpu = False, 2
    with bench.clocks() as found:
        harness.wait_until((tmp_path / "printed").exists, 30, "nvidia-smi has printed")
    assert found == {"sm": [345, 1755, 1980], "memory": [2600, 2619, 2619]}
    assert (tmp_path / "asked").read_text().split()[:3] == ["-i", "2", "--query-gpu=clocks.sm,clocks.mem"]
    monkeypatch.setenv("PATH", "/nowhere")
    with bench.clocks() as found:
        pass
    assert found == {}


@pytest.mark.parametrize("visible, number", [("3,GPU-abc", 2), ("3,GPU-abc", -1), ("", 0)])
def test_a_gpu_that_is_not_visible_is_an_error_that_says_so(bench, monkeypatch, visible, number):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    bench.shim, bench.gpu = False, number
    with pytest.raises(gpu.Failed, match=f"--gpu {number}: CUDA_VISIBLE_DEVICES={visible} has"):
        gpu.machine(bench)


@pytest.mark.parametrize("code, says", [(1, "error: bench_device: why"), (3, "skipped: no GPU: bench_device: why")])
def test_only_a_missing_gpu_is_reported_as_missing(tmp_path, code, says):
    executable(tmp_path / "tests" / "make_random_model", "#!/bin/sh\n")
    executable(tmp_path / "tests" / "bench-device-simt", f"#!/bin/sh\necho 'bench_device: why' >&2\nexit {code}\n")
    done = gpu_bench("--shim", binaries=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == says


# Replaces python3 and reports its arguments. --help, which shows whether bench/gpu.py finds its imports, ends with $IMPORTS.
PYTHON = """#!/bin/bash
[ "${@: -1}" != --help ] || exit "$IMPORTS"
printf '%s\\n' "$0" "$TANDEM_BINARY_DIR" "$@"
"""


@pytest.fixture
def script(tmp_path):
    """Runs bench/gpu.sh in an otherwise empty repository, in the folder tmp_path/here. Returns what the script would have started: the
    Python, the folder of executables, and the arguments."""
    repository = tmp_path / "repository"
    (repository / "bench").mkdir(parents=True)
    shutil.copy(SCRIPT.with_suffix(".sh"), repository / "bench")
    python = executable(tmp_path / "path" / "python3", PYTHON)
    executable(repository / "tests" / "system" / "make_venv.sh", f"#!/bin/sh\nmkdir -p build/venv/bin\ncp {python} build/venv/bin/python\n")
    (tmp_path / "here").mkdir()

    def run(*arguments, imports=0):
        done = subprocess.run([repository / "bench" / "gpu.sh", *arguments], capture_output=True, text=True, cwd=tmp_path / "here",
                              env={"PATH": f"{python.parent}:{os.environ['PATH']}", "IMPORTS": str(imports)})
        assert done.returncode == 0, done.stderr
        started, binaries, *rest = done.stdout.splitlines()
        assert rest[:2] == ["-B", "bench/gpu.py"]
        return started, binaries, rest[2:]

    return run


def test_the_script_makes_an_environment_only_where_python_lacks_something(script, tmp_path):
    executable(tmp_path / "here" / "made" / "bin" / "tandem", "")
    started, binaries, _ = script("--binaries", "made")
    assert started == str(tmp_path / "path" / "python3")
    assert binaries == str(tmp_path / "here" / "made")
    assert not (tmp_path / "repository" / "build").exists()
    started, _, _ = script("--binaries", "made", imports=1)
    assert (tmp_path / "repository" / started) == tmp_path / "repository" / "build" / "venv" / "bin" / "python"


def test_help_shows_whether_the_imports_are_there():
    for options, works in [(["-B"], True), (["-B", "-S"], False)]:  # -S: without the packages that are installed for this Python
        done = subprocess.run([sys.executable, *options, SCRIPT, "--help"], capture_output=True)
        assert (done.returncode == 0) == works


def test_the_script_takes_the_outermost_executables_of_an_archive(script, tmp_path):
    folder = tmp_path / "made"
    for inner in ("a", "bundle", "m", "tests", "z"):  # a folder may be listed in any order
        executable(folder / "build" / inner / "tandem-1" / "bin" / "tandem", "")
    executable(folder / "build" / "bin" / "tandem", "")
    subprocess.run(["tar", "-czf", tmp_path / "made.tar.gz", "-C", folder, "build"], check=True)
    _, binaries, _ = script("--binaries", tmp_path / "made.tar.gz")
    assert binaries == str(tmp_path / "repository" / "build" / "gpu-binaries" / "build")


@pytest.mark.parametrize("given, passed_on", [
    (["--out", "gpu.json"], ["--out", "{here}/gpu.json"]),
    (["--out=a b/gpu.json", "--gpu", "1"], ["--out", "{here}/a b/gpu.json", "--gpu", "1"]),
    (["--out", "/tmp/gpu.json"], ["--out", "/tmp/gpu.json"]),
    (["--python", "venv/bin/python"], ["--python", "{here}/venv/bin/python"]),
    (["--python=../python"], ["--python", "{here}/../python"]),
    (["--python", "python3.12"], ["--python", "python3.12"]),
])
def test_paths_start_at_the_folder_of_the_caller(script, tmp_path, given, passed_on):
    executable(tmp_path / "here" / "made" / "bin" / "tandem", "")
    _, _, arguments = script("--binaries=made", *given)
    assert arguments == [argument.format(here=tmp_path / "here") for argument in passed_on]


def test_the_script_names_every_step():
    done = subprocess.run([SCRIPT.with_suffix(".sh"), "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    for step in gpu.STEPS:
        assert step.__name__ in done.stdout


def test_the_script_refuses_invalid_binaries(tmp_path):
    done = subprocess.run([SCRIPT.with_suffix(".sh"), "--binaries", tmp_path], capture_output=True, text=True)
    assert done.returncode == 2
    assert "there is no bin/tandem" in done.stderr


def test_a_missing_gpu_is_reported():
    if not (harness.BINARY_DIR / "bin" / "bench_device").exists():
        pytest.skip("built without CUDA")
    done = gpu_bench("--only", "kernels")
    if "skipped: no GPU" not in done.stderr:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 1
