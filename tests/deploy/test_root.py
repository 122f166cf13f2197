"""Tests the contents of the image: files, owners, modes, libraries, and that each executable starts. Without a container engine, a chroot
is used."""

import json
import re

import pytest

import roots

# If a chroot cannot have /proc, executables cannot find each other.
NO_PROC = "skipped: /proc cannot be mounted in a chroot here"
TALES = "/opt/tandem/models/tales"


def test_runs_as_a_user_without_rights(root):
    assert root.run("id", "-u").stdout.strip() == str(roots.USER)
    assert root.run("id", "-G").stdout.strip() == str(roots.USER)


@pytest.mark.parametrize("name", roots.EXECUTABLES)
def test_executables_start(root, name):
    assert root.run(name, "--help").stdout.count("--") > 5


def test_workers_say_which_of_them_failed(root):
    """Without a model neither worker can start. The entry point itself runs, and its status is one of its own."""
    if not root.has_proc:
        pytest.skip(NO_PROC)
    done = root.run("tandem-workers", check=False)
    assert done.returncode in (11, 12)
    assert "--model is required" in done.stdout + done.stderr


def test_healthcheck_fails_if_nothing_listens(root):
    done = root.run("tandem-healthcheck", "127.0.0.1:9464", check=False)
    assert done.returncode == 1 and "nobody listens on 127.0.0.1 port 9464" in done.stderr


def test_generates_with_the_embedded_pair(root):
    """Runs the supervisor, all three processes, the sockets and the ring with few writable folders."""
    if not root.has_proc:
        pytest.skip(NO_PROC)
    done = root.run("tandem", "generate", "--temperature", "0", "--max-tokens", "24", "--draft-length", "4", "--json", "Once upon a time")
    completion = json.loads(done.stdout)["response"]["completion"]
    assert completion["usage"]["completion_tokens"] == 24
    assert completion["speculation"]["num_accepted_tokens"] > 0


def test_a_public_address_needs_a_decision(root):
    """The image listens at an address that others can reach. It refuses to do so without TLS, a token or TANDEM_INSECURE."""
    done = root.run("tandem", "serve", check=False)
    assert done.returncode == 2 and "--insecure" in done.stderr


def test_no_file_is_setuid(root):
    assert root.run("find", "/", "-xdev", "-type", "f", "-perm", "/6000", user=0).stdout == ""


def test_owners_and_modes(root):
    for line in root.run("find", "/opt/tandem", "-printf", "%y %m %U:%G %p\n", user=0).stdout.splitlines():
        kind, mode, owner, path = line.split(" ", 3)
        assert owner == "0:0", line
        assert mode == ("755" if kind == "d" or path.startswith("/opt/tandem/bin/") else "644"), line
    names = root.run("ls", "/opt/tandem/bin").stdout.split()
    assert sorted(names) == sorted(roots.EXECUTABLES + roots.SCRIPTS)
    for model in ("target", "draft"):
        assert root.run("cat", f"{TALES}/{model}/config.json").stdout.startswith("{")


def test_only_the_intended_folders_are_writable(root):
    """Checks all folders of the image, with any mounts."""
    writable = root.run("find", "/", "-xdev", "-type", "d", "-writable", check=False).stdout.split()
    allowed = re.compile(r"/(tmp|var/tmp|run/tandem|run/lock|dev/.*|proc/.*)")
    assert [folder for folder in writable if not allowed.fullmatch(folder)] == []
    for folder in ("/tmp", "/run/tandem"):
        root.run("test", "-w", folder)


def test_brings_no_tools_to_build_with(root):
    assert root.run("bash", "-c", "type -P gcc cc make cmake git python3 pip curl wget nvcc", check=False).stdout == ""
    assert root.run("ls", "/var/lib/apt/lists", user=0).stdout == ""


def test_libraries_are_packages_and_no_more_than_needed(root):
    """The executables are linked to libraries of Debian's packages, which tools that list packages find. All installed packages are
    needed."""
    listed = root.run("ldd", *(f"/opt/tandem/bin/{name}" for name in roots.EXECUTABLES)).stdout
    assert "not found" not in listed
    files = {match.group(1) for match in re.finditer(r"=> (/\S+)", listed)}
    assert files and not [file for file in files if file.startswith("/opt")]
    # dpkg knows a library by the path in its package, which is from the time before /lib was a link to /usr/lib.
    ask = 'for f in "$@"; do f="$(readlink -f "$f")"; dpkg -S "$f" 2>/dev/null || dpkg -S "${f#/usr}"; done'
    needed = {line.split(":")[0] for line in root.run("bash", "-c", ask, "-", *sorted(files)).stdout.splitlines()}
    script = (roots.SOURCE_DIR / "deploy" / "container" / "prepare_root.sh").read_text()
    (arguments,) = re.findall(r"--no-install-recommends((?:[^>])*)>", script)
    installed = set(arguments.replace("\\", " ").split())
    assert needed - installed <= {"libc6", "libgcc-s1"}, "missing in prepare_root.sh"
    assert installed <= needed, "not needed by any executable"
