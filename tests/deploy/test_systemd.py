"""Tests systemd's units: systemd reads and rates them, and their commands run as processes. The separate units find each other."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import urllib.request

import pytest

import roots
import settings
from harness import wait_until

FOLDER = roots.SOURCE_DIR / "deploy" / "systemd"
UNITS = ["tandem", "tandem-router", "tandem-verifier", "tandem-draft", "tandem-gateway"]
MOST_EXPOSED = 12  # tenths of systemd's scale, 0 (nothing) to 100

needs_analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="skipped: systemd-analyze is not installed")


def service_of(unit):
    return settings.read_unit(FOLDER / f"{unit}.service")


def values(unit, key):
    return [value for name, value in service_of(unit) if name == key]


@pytest.fixture
def installed(tmp_path):
    """Returns a root folder with the units installed according to docs/containers.md, beside systemd's own."""
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    own = tmp_path / "usr" / "lib" / "systemd" / "system"
    own.mkdir(parents=True)
    for path in pathlib.Path("/lib/systemd/system").iterdir():
        if path.suffix in (".target", ".slice") and path.is_file():
            shutil.copy(path, own)
    binaries = tmp_path / "opt" / "tandem" / "bin"
    binaries.mkdir(parents=True)
    for name in roots.EXECUTABLES:
        (binaries / name).write_text("")
        (binaries / name).chmod(0o755)
    for unit in UNITS:
        shutil.copy(FOLDER / f"{unit}.service", units)
        if unit not in ("tandem-router", "tandem-gateway"):
            (units / f"{unit}.service.d").mkdir()
            shutil.copy(FOLDER / "gpu.conf", units / f"{unit}.service.d")
    return tmp_path


@needs_analyze
def test_systemd_finds_nothing_wrong(installed):
    names = [f"{unit}.service" for unit in UNITS]
    verify = ["systemd-analyze", "verify", f"--root={installed}", "--man=no"]
    done = roots.run(*verify, *names)
    assert done.stdout + done.stderr == ""
    # The tool reports a planted error.
    unit = installed / "etc" / "systemd" / "system" / names[0]
    unit.write_text(unit.read_text().replace("ProtectSystem=", "ProtectSystme="))
    assert "Unknown key" in roots.run(*verify, names[0], check=False).stderr


@needs_analyze
@pytest.mark.parametrize("unit", UNITS)
def test_units_are_hardly_exposed(unit):
    rate = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}"]
    done = roots.run(*rate, FOLDER / f"{unit}.service", check=False)
    print(done.stdout.splitlines()[-1])
    assert done.returncode == 0, done.stdout


def test_all_are_confined_in_the_same_way():
    """The files have the same lines from the user on. A gateway compiles no pattern and has no memory to share."""
    tails = {}
    for unit in UNITS:
        tails.setdefault((FOLDER / f"{unit}.service").read_text().partition("User=tandem\n")[2], []).append(unit)
    common, gateways = sorted(tails, key=lambda tail: len(tails[tail]), reverse=True)
    assert tails[gateways] == ["tandem-gateway"] and common
    assert set(gateways.splitlines()) - set(common.splitlines()) == {"MemoryDenyWriteExecute=yes"}
    assert all(line.startswith("# - ") for line in set(common.splitlines()) - set(gateways.splitlines()))
    assert (FOLDER / "tandem.sysusers.conf").read_text().splitlines()[-1].startswith("u tandem ")


def test_stopping_takes_longer_than_a_drain():
    drain = settings.drain_seconds()
    (supervisor,) = values("tandem", "TimeoutStopSec")
    (router,) = values("tandem-router", "TimeoutStopSec")
    assert int(supervisor) >= drain + 15  # the additional time is for the supervisor to stop the router and each worker
    assert f"TANDEM_DRAIN_SECONDS={drain}" in values("tandem-router", "Environment")
    assert int(router) >= drain + 5
    (gateway,) = values("tandem-gateway", "TimeoutStopSec")
    assert f"TANDEM_GATEWAY_DRAIN_SECONDS={drain}" in values("tandem-gateway", "Environment") and int(gateway) >= drain + 5
    assert values("tandem", "KillMode") == ["mixed"]


def test_settings_are_known():
    known = settings.known()
    for unit in UNITS:
        names = {value.split("=", 1)[0] for value in values(unit, "Environment")}
        assert names - known <= {"XDG_RUNTIME_DIR"}
        for file in values(unit, "EnvironmentFile"):
            _, every = settings.read_environment(FOLDER / pathlib.Path(file).name)
            assert every and set(every) <= known, file


class Service:
    """The command of a unit with its environment, under another /opt/tandem and another /run."""

    def __init__(self, unit, folder, **overrides):
        environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(folder)}
        for value in values(unit, "Environment"):
            name, text = value.split("=", 1)
            environment[name] = text
        for file in values(unit, "EnvironmentFile"):
            environment |= settings.read_environment(FOLDER / pathlib.Path(file).name)[0]
        for directory in values(unit, "RuntimeDirectory"):
            (folder / directory).mkdir(mode=0o700)
        environment = {name: self._here(text, folder) for name, text in environment.items()} | overrides
        (command,) = values(unit, "ExecStart")
        self.log = folder / f"{unit}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(self._here(command, folder).split(), env=environment, stdout=subprocess.PIPE, stderr=log,
                                            text=True)

    @staticmethod
    def _here(text, folder):
        text = text.replace("/opt/tandem/bin", str(roots.BINARY_DIR / "bin")).replace("/opt/tandem/share/tandem", str(roots.SOURCE_DIR))
        return text.replace("%t", str(folder))

    def ready(self):
        """Returns the address that the process reports."""
        line = self.process.stdout.readline()
        assert line.startswith(("ready: ", "http: ")), self.log.read_text()
        return line.split()[1]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def start(tmp_path):
    running = []
    # The path is short, because the path of a socket has at most 107 bytes.
    folder = pathlib.Path("/tmp") / f"tandem-units-{os.getpid()}"
    folder.mkdir(mode=0o700)

    def get(unit, **overrides):
        running.append(Service(unit, folder, **overrides))
        return running[-1]

    yield get
    for service in running:
        if service.process.poll() is None:
            service.process.kill()
            service.process.wait()
    shutil.rmtree(folder)


def generate(address):
    done = roots.run(roots.BINARY_DIR / "bin" / "tandem", "generate", "--connect", address, "--temperature", "0", "--max-tokens", "24",
                     "--draft-length", "4", "--json", "Once upon a time")
    return json.loads(done.stdout)["response"]["completion"]


def test_one_unit_serves(start):
    service = start("tandem", TANDEM_LISTEN="127.0.0.1:0", TANDEM_ADMIN="127.0.0.1:0")
    assert generate(service.ready())["usage"]["completion_tokens"] == 24
    assert service.stop() == 0


def test_separate_units_find_one_another(start):
    """The units use their own sockets and the models of the example files. Only the ports differ here."""
    verifier = start("tandem-verifier", TANDEM_VERIFIER_ADMIN="127.0.0.1:0")
    drafter = start("tandem-draft", TANDEM_DRAFT_ADMIN="127.0.0.1:0")
    verifier.ready()
    drafter.ready()
    router = start("tandem-router", TANDEM_LISTEN="127.0.0.1:0", TANDEM_ADMIN="127.0.0.1:0")
    assert generate(router.ready())["speculation"]["num_accepted_tokens"] > 0
    wait_until(lambda: "log-prob ring: shm" in router.log.read_text(), 30, "the router has a ring")
    assert [service.stop() for service in (router, drafter, verifier)] == [0, 0, 0]


def test_a_gateway_speaks_http_in_front_of_the_one_unit(start):
    service = start("tandem", TANDEM_LISTEN="127.0.0.1:0", TANDEM_ADMIN="127.0.0.1:0")
    gateway = start("tandem-gateway", TANDEM_GATEWAY_CONNECT=service.ready(), TANDEM_GATEWAY_LISTEN="127.0.0.1:0",
                    TANDEM_GATEWAY_ADMIN="127.0.0.1:0")
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 8}).encode()
    request = urllib.request.Request(f"http://{gateway.ready()}/v1/completions", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert json.load(answer)["usage"]["completion_tokens"] == 8
    assert [one.stop() for one in (gateway, service)] == [0, 0]
