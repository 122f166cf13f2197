"""Tests the targets `bundle` and `gpu_check_archive`: their archives run in any folder, and need no library of this machine except
glibc."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request

import pytest

import harness

GLIBC = re.compile(r"(linux-vdso|ld-linux-[^/]*|lib(c|m|dl|rt|pthread|resolv|util))\.so[.0-9]*")
MOST_BYTES = 78_000_000


def made(target, pattern, folder):
    """Returns the target's archive, unpacked in `folder`, away from the build."""
    if not (harness.BINARY_DIR / "CMakeCache.txt").exists():
        pytest.skip("no build folder to make a bundle in")
    done = subprocess.run([shutil.which("cmake"), "--build", harness.BINARY_DIR, "--target", target], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = (harness.BINARY_DIR / "bundle").glob(pattern)
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    (unpacked,) = folder.iterdir()
    return unpacked


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return made("bundle", "tandem-*.tar.gz", tmp_path_factory.mktemp("bundle"))


def foreign_libraries(folder, program):
    """Returns the libraries that a program in `folder` takes from this machine or does not find."""
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}).stdout
    return [line.strip() for line in listed.splitlines()
            if str(folder) not in line and not GLIBC.search(line.split()[0].rsplit("/", 1)[-1])]


def test_the_bundle_is_small(bundle):
    (archive,) = (harness.BINARY_DIR / "bundle").glob("tandem-*.tar.gz")
    assert archive.stat().st_size < MOST_BYTES
    names = [path.name for path in bundle.rglob("*") if path.is_file()]
    assert not [name for name in names if re.match(r"lib(c|cuda|cublas|nvidia)[.-]", name)]
    assert not [name for name in names if re.match(r"lib(grpc|gpr|upb)", name)], "gRPC is in the executables"


PROGRAMS = ["tandem", "tandem-gateway", "tandem-router", "tandem-draft", "tandem-verifier"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_uses_the_libraries_of_the_bundle(bundle, name):
    assert foreign_libraries(bundle, bundle / "bin" / name) == []


def test_the_bundle_serves_its_embedded_pair(bundle, tmp_path):
    command = [bundle / "bin" / "tandem", "generate", "Once upon a time", "--max-tokens", "12", "--temperature", "0", "--models",
               bundle / "share" / "tandem" / "models"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120,
                          env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 20


def test_the_bundle_serves_http(bundle, tmp_path):
    command = [bundle / "bin" / "tandem", "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0", "--models",
               bundle / "share" / "tandem" / "models"]
    with open(tmp_path / "log", "w") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=tmp_path,
                                  env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)})
    try:
        lines = dict(server.stdout.readline().strip().partition(": ")[::2] for _ in ("ready", "http"))
        assert set(lines) == {"ready", "http"}, (tmp_path / "log").read_text()
        body = json.dumps({"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}).encode()
        request = urllib.request.Request(f"http://{lines['http']}/v1/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            completion = json.load(answer)
        assert completion["usage"]["completion_tokens"] == 12 and len(completion["choices"][0]["text"]) > 20
    finally:
        server.terminate()
        code = server.wait(60)
        server.stdout.close()
    assert code == 0, (tmp_path / "log").read_text()


def test_the_gpu_checks_run_in_another_folder(tmp_path):
    if not (harness.BINARY_DIR / "bin" / "bench_device").exists():
        pytest.skip("built without CUDA")
    folder = made("gpu_check_archive", "gpu-check-*.tar.gz", tmp_path)
    tests = sorted(path.name for path in (folder / "tests").iterdir())
    assert tests == sorted(path.name for path in (harness.BINARY_DIR / "tests").glob("*_cuda_test"))
    assert {path.name for path in (folder / "bin").iterdir()} == {*PROGRAMS, "bench_device", "inflate_model"}
    for program in [*(folder / "tests").iterdir(), *(folder / "bin").iterdir()]:
        assert foreign_libraries(folder, program) == []
    # A Python with grpcio alone makes a client from the archive.
    alone = "import sys; sys.modules['grpc_tools'] = None; import stubs; stubs.make(); from tandem.v1 import generate_pb2_grpc, worker_pb2"
    done = subprocess.run([sys.executable, "-c", alone], capture_output=True, text=True, cwd=tmp_path, timeout=60,
                          env={"TANDEM_BINARY_DIR": str(folder), "PYTHONPATH": str(harness.SOURCE_DIR / "tests" / "system")})
    assert done.returncode == 0, done.stderr
    for test in tests:
        listed = subprocess.run([folder / "tests" / test, "--gtest_list_tests"], capture_output=True, text=True, env={})
        assert listed.returncode == 0 and "\n  " in listed.stdout, listed.stderr
