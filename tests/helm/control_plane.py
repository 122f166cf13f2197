"""A Kubernetes control plane on loopback with the programs of tools/fetch_cluster.sh, and one node. kwok replaces the kubelet of the node.
It runs no container, and reports every pod on the node as ready."""

import json
import os
import pathlib
import secrets
import subprocess
import time

import yaml

import chart
import ports

TOOLS = pathlib.Path(os.environ.get("TANDEM_CLUSTER_DIR", chart.SOURCE / "build" / "tools" / "cluster")).resolve()
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "kubectl")
DEFINITIONS = TOOLS / "definitions"  # definitions of custom kinds
PATIENCE = 120  # seconds
ROOM = {"cpu": "64", "memory": "256Gi", "pods": "110"}
NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node", "labels": {"kubernetes.io/hostname": "node"}},
        "status": {"allocatable": ROOM, "capacity": ROOM}}


def is_built():
    return all((TOOLS / program).exists() for program in PROGRAMS) and (DEFINITIONS / "versions").exists()


def output(done):
    assert done.returncode == 0, f"{' '.join(done.args)}\n{done.stdout}{done.stderr}"
    return done.stdout


class ControlPlane:
    def __init__(self, folder):
        self.folder = folder
        self.running = {}
        self._environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(folder / "kubeconfig")}

    def start(self):
        etcd, peer, api, kwok = ports.free_ports(4)
        token = secrets.token_hex(16)
        key, certificates = self.folder / "service-accounts.key", self.folder / "certificates"
        output(self.run("openssl", "genrsa", "-out", key, "2048"))
        tokens = self._write("tokens.csv", f"{token},admin,admin,system:masters\n")
        kubeconfig = self._write("kubeconfig", yaml.safe_dump({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {
                "server": f"https://127.0.0.1:{api}", "certificate-authority": str(certificates / "apiserver.crt")}}],
            "users": [{"name": "admin", "user": {"token": token}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "admin"}}],
        }))

        store, peers = f"http://127.0.0.1:{etcd}", f"http://127.0.0.1:{peer}"
        # etcd ends with the test, so nothing must reach the disk.
        self._launch("etcd", f"--data-dir={self.folder}/etcd", "--unsafe-no-fsync", "--log-level=warn",
                     f"--listen-client-urls={store}", f"--advertise-client-urls={store}", f"--listen-peer-urls={peers}",
                     f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=default={peers}")
        # The API server makes its own certificate. Nobody reaches it by the Service `kubernetes`, whose endpoint must not be on loopback.
        # Image volumes, which values-dra.yaml has, are on by default only from 1.35 on.
        self._launch("kube-apiserver", f"--etcd-servers={store}", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
                     f"--secure-port={api}", f"--cert-dir={certificates}", "--endpoint-reconciler-type=none",
                     "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC", f"--token-auth-file={tokens}",
                     "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
                     f"--service-account-signing-key-file={key}", "--feature-gates=ImageVolume=true")
        self.wait_for("get", "--raw=/readyz")
        # They need no port, and there are no others to elect a leader from. By default, the first one would make a folder below /usr.
        alone = (f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=false")
        self._launch("kube-controller-manager", *alone, f"--flex-volume-plugin-dir={self.folder}/volume-plugins")
        self._launch("kube-scheduler", *alone)
        self._launch("kwok", f"--kubeconfig={kubeconfig}", "--manage-all-nodes=true", f"--server-address=127.0.0.1:{kwok}")
        output(self.kubectl("create", "--filename=-", input=json.dumps(NODE)))
        self.wait_for("wait", "node/node", "--for=condition=Ready", "--timeout=5s")

    def stop(self):
        """Kills all processes. Nothing of them is kept, so none has to end in order."""
        for process in reversed(self.running.values()):
            process.kill()
            process.wait()

    def version(self):
        server = json.loads(output(self.kubectl("version", "--output=json")))["serverVersion"]
        return f"{server['major']}.{server['minor']}"

    def kubectl(self, *arguments, input=None):
        return self.run(TOOLS / "kubectl", *arguments, input=input)

    def helm(self, *arguments):
        return self.run(chart.helm("--whole"), *arguments)

    def run(self, *command, input=None):
        return subprocess.run([*map(str, command)], input=input, capture_output=True, text=True, timeout=300, env=self._environment)

    def wait_for(self, *arguments):
        """Waits until kubectl succeeds with these arguments."""
        end = time.monotonic() + PATIENCE
        while (done := self.kubectl(*arguments)).returncode != 0:
            for name, process in self.running.items():
                assert process.poll() is None, f"{name} ended:\n{self.log(name)}"
            assert time.monotonic() < end, "\n".join([done.stderr, *(f"{name}:\n{self.log(name)}" for name in self.running)])
            time.sleep(0.5)

    def log(self, name):
        return "\n".join((self.folder / f"{name}.log").read_text().splitlines()[-20:])

    def _launch(self, program, *arguments):
        # setpriv makes the process end with the test, even if the test is killed.
        command = ["setpriv", "--pdeathsig", "KILL", TOOLS / program, *arguments]
        with open(self.folder / f"{program}.log", "w") as log:
            self.running[program] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                                     cwd=self.folder, env=self._environment)

    def _write(self, name, text):
        path = self.folder / name
        path.touch(0o600)  # Helm warns about a kubeconfig that others may read
        path.write_text(text)
        return path
