"""`cmake --build … --target bundle`: what it packs runs from anywhere, with no library of this machine but glibc's."""

import os
import re
import shutil
import subprocess
import tarfile

import pytest

import harness

GLIBC = re.compile(r"(linux-vdso|ld-linux-[^/]*|lib(c|m|dl|rt|pthread|resolv|util))\.so[.0-9]*")
MOST_BYTES = 60_000_000


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """Unpacked, away from where it was made."""
    if not (harness.BINARY_DIR / "CMakeCache.txt").exists():
        pytest.skip("no build folder to make a bundle in")
    made = subprocess.run([shutil.which("cmake"), "--build", harness.BINARY_DIR, "--target", "bundle"], capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    (archive,) = (harness.BINARY_DIR / "bundle").glob("tandem-*.tar.gz")
    folder = tmp_path_factory.mktemp("bundle")
    with tarfile.open(archive) as tar:
        tar.extractall(folder)
    (unpacked,) = folder.iterdir()
    return unpacked


def test_is_small(bundle):
    (archive,) = (harness.BINARY_DIR / "bundle").glob("tandem-*.tar.gz")
    assert archive.stat().st_size < MOST_BYTES
    names = [path.name for path in bundle.rglob("*") if path.is_file()]
    assert not [name for name in names if re.match(r"lib(c|cuda|cublas|nvidia)[.-]", name)]
    assert not [name for name in names if re.match(r"lib(grpc|gpr|upb)", name)], "gRPC is in the executables"


@pytest.mark.parametrize("name", ["tandem", "tandem-router", "tandem-draft", "tandem-verifier"])
def test_libraries_are_its_own(bundle, name):
    listed = subprocess.run(["ldd", bundle / "bin" / name], capture_output=True, text=True, check=True,
                            env={"PATH": os.environ["PATH"]}).stdout
    assert "not found" not in listed
    foreign = [line.strip() for line in listed.splitlines()
               if str(bundle) not in line and not GLIBC.search(line.split()[0].rsplit("/", 1)[-1])]
    assert not foreign


def test_serves_the_embedded_pair_that_it_has(bundle, tmp_path):
    command = [bundle / "bin" / "tandem", "generate", "Once upon a time", "--max-tokens", "12", "--temperature", "0", "--models",
               bundle / "share" / "tandem" / "models"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120,
                          env={"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 20
