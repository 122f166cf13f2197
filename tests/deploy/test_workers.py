"""Tests `tandem-workers` as a process: after any end or signal, both workers end, and the status says which one failed. Also tests
`tandem-healthcheck` with ports that answer and ports that do not."""

import http.server
import os
import signal
import ssl
import subprocess
import threading

import pytest

import roots
from certificates import Authority
from harness import descendants, wait_until

SCRIPTS_DIR = roots.SOURCE_DIR / "deploy" / "container"
TALES_DIR = roots.SOURCE_DIR / "models" / "tales"


class Pair:
    def __init__(self, folder, *arguments, **environment):
        self.log = folder / "log"
        settings = {
            "PATH": f"{roots.BINARY_DIR / 'bin'}:/usr/bin:/bin", "TMPDIR": str(folder), "XDG_RUNTIME_DIR": str(folder),
            "TANDEM_VERIFIER_MODEL": str(TALES_DIR / "target"), "TANDEM_DRAFT_MODEL": str(TALES_DIR / "draft"),
            "TANDEM_VERIFIER_LISTEN": "127.0.0.1:0", "TANDEM_DRAFT_LISTEN": "127.0.0.1:0",
        }
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([SCRIPTS_DIR / "tandem-workers", *arguments], stdout=log, stderr=log,
                                            env=settings | environment, start_new_session=True)

    def ready(self):
        wait_until(lambda: self.log.read_text().count("ready: ") == 2, 60, "both workers are ready\n" + self.log.read_text())
        return self

    def workers(self):
        return {name.removeprefix("tandem-"): pid for pid, name in descendants(self.process.pid).items() if name.startswith("tandem-")}

    def end(self, timeout=25):
        return self.process.wait(timeout)


@pytest.fixture
def start(tmp_path):
    running = []

    def get(*arguments, **environment):
        running.append(Pair(tmp_path, *arguments, **environment))
        return running[-1]

    yield get
    for pair in running:
        left = list(descendants(pair.process.pid))
        if pair.process.poll() is None:
            left.append(pair.process.pid)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        pair.process.wait()
        assert left == [] or pair.process.returncode == -signal.SIGKILL, "a worker was left behind"


def gone(pids):
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_both_workers(start, number):
    pair = start().ready()
    pids = pair.workers().values()
    pair.process.send_signal(number)
    assert pair.end() == 0
    assert gone(pids)


def test_a_signal_before_readiness_stops_both_workers(start):
    pair = start()
    wait_until(lambda: len(pair.workers()) == 2, 30, "both started")
    pair.process.send_signal(signal.SIGTERM)
    assert pair.end() == 0


@pytest.mark.parametrize("worker, status", [("verifier", 11), ("draft", 12)])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_pair_ends_with_either_worker(start, worker, status, number):
    """This also holds if a worker ends by itself and in order, because nobody asked it to."""
    pair = start().ready()
    pids = pair.workers()
    os.kill(pids[worker], number)
    assert pair.end() == status
    assert gone(pids.values())
    assert f"the {worker} worker ended with status {137 if number == signal.SIGKILL else 0}" in pair.log.read_text()


def test_a_worker_that_cannot_start_ends_the_pair(start, tmp_path):
    pair = start(TANDEM_DRAFT_MODEL=str(tmp_path / "nothing"))
    assert pair.end(60) == 12


def test_a_worker_that_hangs_is_killed(start):
    # The script counts whole seconds. The other worker must have time to stop.
    pair = start(TANDEM_WORKERS_STOP_SECONDS="3").ready()
    pids = pair.workers()
    os.kill(pids["verifier"], signal.SIGSTOP)
    pair.process.send_signal(signal.SIGTERM)
    assert pair.end() == 11
    assert gone(pids.values())
    assert "killing the workers that have not stopped: verifier" in pair.log.read_text()


def test_the_pair_ends_when_its_parent_is_killed(start):
    pair = start().ready()
    pids = pair.workers().values()
    pair.process.kill()
    pair.end()
    wait_until(lambda: gone(pids), 30, "both workers end with their parent")


def test_options_go_to_both_workers_and_insecure_is_needed(start):
    refused = start(TANDEM_VERIFIER_LISTEN="0.0.0.0:0")
    assert refused.end() == 11
    assert "--insecure" in refused.log.read_text()
    allowed = start("--log-level", "error", TANDEM_VERIFIER_LISTEN="0.0.0.0:0", TANDEM_VERIFIER_INSECURE="true").ready()
    commands = {name: open(f"/proc/{pid}/cmdline").read().split("\0") for name, pid in allowed.workers().items()}
    assert all("--log-level" in command for command in commands.values())
    allowed.process.send_signal(signal.SIGTERM)
    assert allowed.end() == 0


def test_an_invalid_time_is_refused(start):
    pair = start(TANDEM_WORKERS_STOP_SECONDS="soon")
    assert pair.end() == 2
    assert 'got "soon"' in pair.log.read_text()


@pytest.fixture
def admin():
    """An admin port that answers with `admin.status`."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            paths.append((self.path, self.headers["Host"]))
            self.send_response(server.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    paths = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.status = 200
    server.paths = paths
    Handler.protocol_version = "HTTP/1.1"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def health(*arguments, **environment):
    return subprocess.run([SCRIPTS_DIR / "tandem-healthcheck", *arguments], capture_output=True, text=True, timeout=30,
                          env={"PATH": "/usr/bin:/bin"} | environment)


def test_a_process_is_healthy_if_it_says_so(admin):
    address = f"127.0.0.1:{admin.server_port}"
    assert health(address).returncode == 0
    assert health(f"0.0.0.0:{admin.server_port}").returncode == 0
    assert health(TANDEM_ADMIN=address).returncode == 0  # process 1 does not belong to Tandem here, so the router's port is asked
    assert admin.paths == [("/readyz", "127.0.0.1")] * 3
    admin.status = 503
    done = health(address)
    assert done.returncode == 1 and "503" in done.stderr


def test_a_process_that_cannot_be_asked_is_unhealthy(admin):
    port = admin.server_port
    admin.shutdown()
    admin.server_close()
    done = health(f"127.0.0.1:{port}")
    assert done.returncode == 1 and f"nobody listens on 127.0.0.1 port {port}" in done.stderr
    for unknown in ("none", "auto", ""):
        assert health(TANDEM_ADMIN=unknown).returncode == 1


def test_readiness_is_also_asked_over_tls(admin, tmp_path):
    identity = Authority(tmp_path / "authority").issue("admin")  # an authority that the caller does not know
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    admin.socket = context.wrap_socket(admin.socket, server_side=True)
    address = f"127.0.0.1:{admin.server_port}"
    with_tandem = {"PATH": f"{roots.BINARY_DIR / 'bin'}:/usr/bin:/bin"}
    with_tls = with_tandem | {"TANDEM_TLS_CERTIFICATE": "/etc/tandem/certificate.pem"}
    assert health(TANDEM_ADMIN=address, **with_tls).returncode == 0
    assert health(TANDEM_ADMIN=f"0.0.0.0:{admin.server_port}", **with_tls).returncode == 0
    assert health("--tls", address, **with_tandem).returncode == 0
    assert admin.paths == [("/readyz", address)] * 3
    admin.status = 503
    done = health(TANDEM_ADMIN=address, **with_tls)
    assert done.returncode == 1 and "503" in done.stderr
    admin.shutdown()
    admin.server_close()
    assert health(TANDEM_ADMIN=address, **with_tls).returncode == 1
