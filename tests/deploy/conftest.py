"""Fixtures: the image, and a chroot that replaces it if containers cannot run."""

import os
import shutil
import subprocess
import sys

import pytest

import roots

# The helpers of the tests of executables: a view of processes, and waiting.
sys.path.insert(0, str(roots.SOURCE_DIR / "tests" / "system"))
import stubs  # noqa: E402

stubs.make()


def why_no_engine():
    """Builds the image and runs a command in it. Returns the obstacle, or nothing."""
    missing = [name for name in ("buildah", "podman", "runc", "debootstrap") if shutil.which(name) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    if os.geteuid() != 0:
        return "debootstrap needs root"
    for driver in ("overlay", "vfs"):
        os.environ["TANDEM_STORAGE_DRIVER"] = driver
        probe = subprocess.run([roots.HERE / "engine.sh", "buildah", "from", "scratch"], capture_output=True, text=True)
        if probe.returncode == 0:
            subprocess.run([roots.HERE / "engine.sh", "buildah", "rm", probe.stdout.strip()], capture_output=True)
            break
    else:
        return f"buildah has no storage here: {probe.stderr.strip().splitlines()[-1]}"
    # A Dockerfile that does not build is a failure. An engine that can run nothing is a property of the machine.
    roots.run(roots.HERE / "build_image.sh", timeout=600)
    done = subprocess.run([roots.HERE / "engine.sh", "podman", "run", "--rm", *roots.Engine.CONFINED, roots.Engine.IMAGE, "true"],
                          capture_output=True, text=True)
    return "" if done.returncode == 0 else f"podman cannot run a container here: {done.stderr.strip().splitlines()[-1]}"


@pytest.fixture(scope="session")
def engine():
    reason = why_no_engine()
    if reason:
        pytest.skip(f"skipped: {reason}")
    engine = roots.Engine()
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def chroot():
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.skip("skipped: debootstrap is not installed, or this is not root")
    return roots.Chroot(roots.run(roots.HERE / "make_chroot.sh", timeout=600).stdout.strip())


@pytest.fixture(params=["image", "chroot"])
def root(request):
    """Returns an object with run(command). Each test that uses it runs in a container and in the chroot."""
    return request.getfixturevalue("engine" if request.param == "image" else "chroot")


@pytest.fixture
def start(engine):
    """Returns start(command..., environment={}, options=[]), which returns a container. The container is removed after the test."""
    running = []

    def get(*command, **options):
        running.append(roots.Container(engine, *command, **options))
        return running[-1]

    yield get
    for container in reversed(running):
        container.remove()
