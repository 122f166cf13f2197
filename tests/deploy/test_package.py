"""Tests tools/package.sh: both packages run in a bare Debian that has nothing but its base system."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

import roots

PACKAGES = roots.SOURCE_DIR / "build" / "packages"


def pack():
    """Makes the packages of the bundle, with an archive that is less tight than a release's and takes a fiftieth of the time."""
    return roots.run(roots.SOURCE_DIR / "tools" / "package.sh", "--level", 3, "--from", roots.BINARY_DIR, timeout=300)


@pytest.fixture(scope="module")
def packages():
    if not (roots.BINARY_DIR / "CMakeCache.txt").exists():
        pytest.skip("no build folder to make packages in")
    roots.run("cmake", "--build", roots.BINARY_DIR, "--target", "bundle", timeout=600)
    done = pack()
    return [pathlib.Path(line) for line in done.stdout.split() if line.startswith("/")]


@pytest.fixture
def bare(tmp_path):
    """Returns run(command...) in a new bare root, with a `root` that files can be put into."""
    if shutil.which("debootstrap") is None or os.geteuid() != 0:
        pytest.skip("skipped: debootstrap is not installed, or this is not root")
    archive = roots.run(roots.HERE / "make_base_root.sh", timeout=600).stdout.strip()
    root = tmp_path / "root"
    root.mkdir()
    roots.run("tar", "--numeric-owner", "-C", root, "-xf", archive, timeout=120)

    def inside(*command, **options):
        script = 'mount -t proc proc "$1/proc" && mount -t tmpfs tmpfs "$1/tmp" && exec chroot "$@"'
        return roots.run("unshare", "--mount", "bash", "-c", script, "bash", root, "/usr/bin/env", "-i",
                         "PATH=/usr/sbin:/usr/bin:/sbin:/bin", *command, **options)

    inside.root = root
    if subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("skipped: /proc cannot be mounted in a chroot here")
    return inside


def generates(bare, tandem):
    done = bare(tandem, "generate", "--temperature", "0", "--max-tokens", "16", "--draft-length", "4", "--json", "Once upon a time")
    completion = json.loads(done.stdout)["response"]["completion"]
    return completion["usage"]["completion_tokens"] == 16 and completion["speculation"]["num_accepted_tokens"] > 0


def test_there_are_two_packages_of_one_version(packages):
    archive, deb = sorted(packages, key=lambda path: path.suffix, reverse=True)
    assert archive.name.startswith("tandem-") and archive.name.endswith(".tar.zst")
    assert deb.name == f"tandem_{archive.name.split('-')[1]}_{roots.run('dpkg', '--print-architecture').stdout.strip()}.deb"
    assert archive.stat().st_size < 78_000_000 and deb.stat().st_size < 78_000_000


def test_the_archive_runs_where_it_is_unpacked(packages, bare):
    (archive,) = (path for path in packages if path.suffix == ".zst")
    roots.run("tar", "--zstd", "-C", bare.root / "srv", "-xf", archive)
    (folder,) = (bare.root / "srv").iterdir()
    assert generates(bare, f"/srv/{folder.name}/bin/tandem")


def test_the_deb_is_installed_runs_and_is_removed(packages, bare):
    (deb,) = (path for path in packages if path.suffix == ".deb")
    shutil.copy(deb, bare.root / "root" / "tandem.deb")
    bare("dpkg", "--install", "/root/tandem.deb")
    assert generates(bare, "tandem")
    assert (bare.root / "lib/systemd/system/tandem.service").exists()
    assert (bare.root / "lib/systemd/system/tandem-gateway.service").exists()
    assert "--router-ca" in bare("/opt/tandem/bin/tandem-gateway", "--help-all").stdout
    bare("dpkg", "--purge", "tandem")
    left = [path for path in ("opt/tandem", "usr/bin/tandem", "lib/systemd/system/tandem.service") if (bare.root / path).exists()]
    assert left == []


def test_a_second_run_makes_the_same_archive(packages):
    (archive,) = (path for path in packages if path.suffix == ".zst")
    before = archive.read_bytes()
    pack()
    assert archive.read_bytes() == before
