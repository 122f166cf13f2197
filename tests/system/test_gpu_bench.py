"""bench/gpu.sh over the shim: its steps work, and find what is wrong."""

import argparse
import json
import os
import subprocess
import sys

import pytest

import harness

SCRIPT = harness.SOURCE_DIR / "bench" / "gpu.py"
sys.path.insert(0, str(SCRIPT.parent))

import gpu  # noqa: E402


def gpu_bench(*arguments):
    return subprocess.run([sys.executable, "-B", str(SCRIPT), *arguments], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "TANDEM_BINARY_DIR": str(harness.BINARY_DIR)})


def test_every_step_runs_over_the_shim(tmp_path):
    out = tmp_path / "gpu.json"
    done = gpu_bench("--shim", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    steps = json.loads(out.read_text())["steps"]
    assert {name for name, step in steps.items() if step["status"] == "passed"} == {"agreement", "exactness", "kills", "bandwidth"}
    assert {name for name, step in steps.items() if step["status"] == "skipped"} == {"kernels", "sanitizer", "end_to_end"}
    assert steps["agreement"]["compared"] >= 10


def test_agreement_and_exactness_can_fail(tmp_path, monkeypatch):
    bench = gpu.Bench(argparse.Namespace(shim=True, gpu=0), tmp_path)
    cluster = bench.cluster
    monkeypatch.setattr(bench, "cluster", lambda backend: cluster(backend, bench.pair[::-1] if backend == "cpu" else bench.pair))
    with pytest.raises(gpu.Failed, match="differ where the two best"):
        gpu.agreement(bench)
    monkeypatch.setattr(bench, "cluster", lambda _: cluster("cpu"))
    with pytest.raises(gpu.Failed, match="transport is '(shm|inline)'"):
        gpu.exactness(bench)


def test_without_a_gpu_it_says_so():
    if not (harness.BINARY_DIR / "bin" / "bench_device").exists():
        pytest.skip("built without CUDA")
    done = gpu_bench("--only", "kernels")
    if "skipped: no GPU" not in done.stderr:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 1
