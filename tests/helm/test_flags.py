"""Tests that the executables know all flags and variables of the containers: by the table of flags, and by running them as rendered."""

import functools
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import threading
import urllib.error
import urllib.request

import pytest

import chart
import rules
from ports import free_ports

BINARIES = pathlib.Path(os.environ.get("TANDEM_BINARY_DIR", chart.SOURCE / "build" / "cpu-release")) / "bin"
PREFIXES = {"TANDEM_VERIFIER_": "tandem-verifier", "TANDEM_DRAFT_": "tandem-draft", "TANDEM_GATEWAY_": "tandem-gateway"}
GUEST, OWNER = "a-guest-of-the-house", "the-owner-of-the-house"
PORTS = ("50051", "50061", "50062", "8000", "9464", "9465", "9466", "9467")
# These belong to no executable: they are for an init container.
OTHERS = {"TANDEM_COMPONENT", "TANDEM_WORKERS_STOP_SECONDS"}

pytestmark = pytest.mark.skipif(not (BINARIES / "tandem-router").exists(), reason=f"nothing is built in {BINARIES}")


@functools.cache
def flag_table():
    return json.loads(subprocess.run([BINARIES / "tandem-flags"], capture_output=True, text=True, check=True, timeout=30).stdout)["flags"]


def flags_of(*command):
    return {flag["name"].removeprefix("--") for flag in flag_table() if " ".join(command) in flag["programs"]}


def variables_of(program):
    return {flag["programs"][program] for flag in flag_table() if program in flag["programs"]} - {""}


def unknown(documents):
    """Returns the flags and variables that no executable knows."""
    for place, container, _, _ in rules.containers(documents):
        command = container.get("command", [])
        if command[:1] in (["tandem"], ["tandem-router"], ["tandem-verifier"], ["tandem-draft"], ["tandem-gateway"]):
            for argument in container.get("args", []):
                flag = re.match(r"--([a-z0-9-]+)", argument)
                if flag and flag[1] not in flags_of(*command):
                    yield f"{place}: {' '.join(command)} does not know --{flag[1]}"
        for entry in container.get("env", []):
            for prefix, program in PREFIXES.items():
                if entry["name"].startswith(prefix) and entry["name"] not in variables_of(program):
                    yield f"{place}: {program} does not know {entry['name']}"
            others = entry["name"].startswith("TANDEM_") and not entry["name"].startswith(tuple(PREFIXES))
            if others and entry["name"] not in OTHERS:
                yield f"{place}: nobody knows {entry['name']}"


@pytest.mark.parametrize("example", [None, *chart.EXAMPLES, chart.EVERYTHING], ids=lambda example: example.stem if example else "defaults")
def test_the_executables_know_their_flags_and_variables(example):
    assert list(unknown(chart.documents(chart.render(example)))) == []


def test_a_flag_that_does_not_exist_is_noticed():
    text = chart.render(None, chart.NEWEST, "--set", "router.options.max-queues=3", "--set", "gpu.sharing=singleContainer",
                        "--set", "drafter.options.max-slot=3")
    assert sorted(unknown(chart.documents(text))) == [
        "tandem-router/router: tandem-router does not know --max-queues",
        "tandem-workers/verifier: tandem-draft does not know TANDEM_DRAFT_MAX_SLOT",
    ]


def make_certificates(folder, documents):
    """Makes the contents of the Secrets of values-secure.yaml, as cert-manager would make them for the Certificates, at the paths that
    pods mount."""
    def openssl(*arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=30)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    authority, key = folder / "ca.crt", folder / "ca.key"
    openssl("req", "-x509", *new_key, "-subj", "/CN=team-ca", "-keyout", key, "-out", authority)
    for certificate in rules.of_kind(documents, "Certificate"):
        component = certificate["metadata"]["labels"]["app.kubernetes.io/component"]
        names = ",".join(f"DNS:{name}" for name in certificate["spec"]["dnsNames"])
        secret = folder / f"{component}-tls"
        secret.mkdir()
        extension = folder / f"{component}.ext"
        extension.write_text(f"subjectAltName={names}\n")
        request = folder / f"{component}.csr"
        openssl("req", *new_key, "-subj", f"/CN={component}", "-keyout", secret / "tls.key", "-out", request)
        openssl("x509", "-req", "-days", "2", "-in", request, "-CA", authority, "-CAkey", key, "-CAcreateserial", "-extfile", extension,
                "-out", secret / "tls.crt")
        shutil.copy(authority, secret)
    for name, content in (("router-ca/ca.crt", authority.read_text()), ("tokens/tokens", f"client {GUEST}\nadmin {OWNER}\n")):
        (folder / name).parent.mkdir()
        (folder / name).write_text(content)
        (folder / name).chmod(0o440)


class Pods:
    """Runs the containers of a render as processes of this machine. Only addresses and the places of folders differ."""

    def __init__(self, folder, documents):
        self.folder = folder
        self.containers = {place.rpartition("/")[2]: one for place, one, _, _ in rules.containers(documents)}
        self.ports = dict(zip(PORTS, map(str, free_ports(len(PORTS)))))
        self.running = {}
        # `localhost` is the name after `kubectl port-forward`.
        changes = {"dns:tandem-workers": "dns:localhost", "tandem-router:": "localhost:", **self.ports,
                   "/opt/tandem/models": str(chart.SOURCE / "models"), "/run/tandem": str(folder), "/etc/tandem": str(folder / "etc")}
        pattern = re.compile("|".join(map(re.escape, changes)))
        self._change = lambda word: pattern.sub(lambda match: changes[match[0]], word)
        self._environment = {"PATH": os.environ["PATH"], "TMPDIR": str(folder), "TANDEM_VERIFIER_THREADS": "1", "TANDEM_DRAFT_THREADS": "1"}

    def command(self, name):
        program, *command = self.containers[name]["command"]
        return [str(BINARIES / program), *map(self._change, [*command, *self.containers[name]["args"]])]

    def start(self, name):
        with open(self.folder / f"{name}.log", "w") as log:
            process = subprocess.Popen(self.command(name), stdout=subprocess.PIPE, stderr=log, text=True, env=self._environment)
        self.running[name] = process
        patience = threading.Timer(120, process.kill)
        patience.start()
        line = process.stdout.readline()
        patience.cancel()
        assert line.startswith("http: " if name == "gateway" else "ready: "), self.log(name)

    def run(self, name):
        return subprocess.run(self.command(name), capture_output=True, text=True, timeout=60, env=self._environment)

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()

    def status(self, name, get, token=None):
        """Returns the status of the answer to the request of a probe."""
        return self.ask(name, get, token)[0]

    def ask(self, name, get, token=None, body=None):
        """Returns status and body of the answer to the request of a probe, or to one with a body."""
        port, = [port["containerPort"] for port in self.containers[name]["ports"] if port["name"] == get["port"]]
        request = urllib.request.Request(f"{get['scheme'].lower()}://127.0.0.1:{self.ports[str(port)]}{get['path']}")
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        unchecked = ssl.create_default_context()  # kubelets do not check either
        unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
        try:
            with urllib.request.urlopen(request, timeout=30, context=unchecked) as response:
                return response.status, response.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def stop(self):
        for process in reversed(self.running.values()):
            process.send_signal(signal.SIGTERM)
        return {name: process.wait(timeout=30) for name, process in reversed(self.running.items())}


@pytest.mark.parametrize("example", [None, chart.CHART / "examples" / "values-http.yaml"], ids=["defaults", "secure"])
def test_the_rendered_containers_serve(example, tmp_path):
    """The processes attach to each other, their probes are answered, and `helm test` and a client of HTTP get their tokens."""
    settings = "listenHost=127.0.0.1,longestStreamSeconds=1,gateway.enabled=true"
    documents = chart.documents(chart.render(example, chart.NEWEST, "--set", settings))
    (tmp_path / "etc").mkdir()
    make_certificates(tmp_path / "etc", documents)
    pods = Pods(tmp_path, documents)
    try:
        for name in ("verifier", "drafter", "router", "gateway"):
            pods.start(name)
        for name in pods.running:
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                if probe in pods.containers[name]:
                    assert pods.status(name, pods.containers[name][probe]["httpGet"]) == 200, (name, probe)
            metrics = {**pods.containers[name]["livenessProbe"]["httpGet"], "path": "/metrics"}
            assert pods.status(name, metrics) == (401 if example else 200)
            assert pods.status(name, metrics, token=OWNER) == 200
        post = {**pods.containers["gateway"]["readinessProbe"]["httpGet"], "path": "/v1/completions"}
        body = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0}
        assert pods.ask("gateway", post, body=body)[0] == (401 if example else 200)
        status, answer = pods.ask("gateway", post, token=GUEST, body=body)
        assert status == 200 and json.loads(answer)["usage"]["completion_tokens"] == 8, answer
        done = pods.run("generate")
        assert done.returncode == 0, done.stderr
        assert re.search(r"tokens +8 after a prompt of", done.stderr), done.stderr
    finally:
        endings = pods.stop()
    assert set(endings.values()) == {0}, endings
    assert "shm" in pods.log("router")
