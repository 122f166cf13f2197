"""Runs the result of the Dockerfile: in containers of the image, or in a chroot that the same scripts make."""

import json
import os
import pathlib
import re
import shlex
import subprocess

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]
BINARY_DIR = pathlib.Path(os.environ.get("TANDEM_BINARY_DIR", SOURCE_DIR / "build" / "cpu-release"))
HERE = SOURCE_DIR / "tests" / "deploy"
DOCKERFILE = SOURCE_DIR / "deploy" / "container" / "Dockerfile"
USER = 65532
EXECUTABLES = ["tandem", "tandem-draft", "tandem-gateway", "tandem-router", "tandem-verifier"]
SCRIPTS = ["tandem-healthcheck", "tandem-workers"]


def run(*command, timeout=60, check=True, **options):
    """Does the same as subprocess.run. A failure shows the output."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout, **options)
    assert not check or done.returncode == 0, f"{shlex.join(map(str, command))}: status {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def dockerfile_environment():
    """Returns the ENV of the last stage."""
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^ENV (.*)$", text, re.MULTILINE)
    return dict(setting.split("=", 1) for setting in shlex.split(line))


class Engine:
    """Runs podman on the storage of build_image.sh."""

    IMAGE = "localhost/tandem"
    # Kubernetes and compose run the image in the same way: only two folders are writable, there are no capabilities, and setuid gains
    # nothing. There is no network except loopback, where every container has the image's own ports for itself.
    CONFINED = ["--network", "none", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all",
                "--security-opt", "no-new-privileges", "--tmpfs", "/tmp:rw,mode=1777,noexec", "--tmpfs", "/run/tandem:rw,U,noexec",
                "--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096", "--log-driver", "k8s-file"]

    has_proc = True

    def __init__(self):
        self._idle = None

    def podman(self, *arguments, **options):
        return run(HERE / "engine.sh", "podman", *arguments, **options)

    def inspect(self):
        (image,) = json.loads(self.podman("image", "inspect", self.IMAGE).stdout)
        return image

    def run(self, *command, user=None, environment={}, check=True, timeout=60):
        """Runs a command in a container that does nothing else, because starting a container for each command takes long."""
        if self._idle is None:
            self._idle = Container(self, "sleep", "infinity")
        options = [f"--env={name}={value}" for name, value in environment.items()]
        if user is not None:
            options += ["--user", str(user)]
        return self.podman("exec", *options, self._idle.id, *command, check=check, timeout=timeout)

    def close(self):
        if self._idle is not None:
            self._idle.remove()


class Container:
    """A container that runs in the background."""

    def __init__(self, engine, *command, environment={}, options=()):
        self._engine = engine
        settings = [f"--env={name}={value}" for name, value in environment.items()]
        confined = list(Engine.CONFINED)
        if "--network" in options:
            del confined[:2]
        self.id = engine.podman("run", "--detach", *confined, *options, *settings, engine.IMAGE, *command).stdout.strip()

    def exec(self, *command, check=True, timeout=60):
        return self._engine.podman("exec", self.id, *command, check=check, timeout=timeout)

    def inspect(self, template):
        return self._engine.podman("inspect", "--format", template, self.id).stdout.strip()

    @property
    def pid(self):
        """Returns the id of its first process on this machine."""
        return int(self.inspect("{{.State.Pid}}"))

    def is_healthy(self):
        return self._engine.podman("healthcheck", "run", self.id, check=False).returncode == 0

    def logs(self):
        done = self._engine.podman("logs", self.id)
        return done.stdout + done.stderr

    def exit_code(self, timeout=30):
        """Waits until the container ends."""
        return int(self._engine.podman("wait", self.id, timeout=timeout).stdout)

    def stop(self, seconds=60):
        """Does the same as `docker stop`: sends the image's signal, and SIGKILL after the timeout. Returns the exit code."""
        self._engine.podman("stop", "--time", seconds, self.id, timeout=seconds + 20)
        return self.exit_code()

    def remove(self):
        self._engine.podman("rm", "--force", "--time", 0, self.id, check=False)


class Chroot:
    """Runs commands in a folder. Users, modes and entry points need no container engine, because scripts do the work of the Dockerfile."""

    def __init__(self, root):
        self._root = pathlib.Path(root)
        self.has_proc = run("unshare", "--mount", "true", check=False).returncode == 0

    def run(self, *command, user=None, environment={}, check=True, timeout=60):
        user = USER if user is None else user
        settings = [f"{name}={value}" for name, value in (dockerfile_environment() | environment).items()]
        inside = ["chroot", f"--userspec={user}:{user}", "--groups=", str(self._root), "/usr/bin/env", "-i", *settings, *command]
        if not self.has_proc:
            return run(*inside, check=check, timeout=timeout)
        # The mount exists only for this command.
        script = f"mount -t proc proc {shlex.quote(str(self._root / 'proc'))} && exec {shlex.join(map(str, inside))}"
        return run("unshare", "--mount", "bash", "-c", script, check=check, timeout=timeout)
