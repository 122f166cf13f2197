"""Builds the wheel of the Python client and installs it into a fresh environment, which finds the packages of build/venv too."""

import atexit
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"


def run(*command, timeout=120, **options):
    """Runs a command to its end. Returns what it printed."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=timeout, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def pip(*arguments):
    """Runs pip without the network: what a build needs is in build/venv."""
    return run(sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", *arguments,
               env={**os.environ, "PIP_NO_INDEX": "1"})


def build_wheel(source, folder):
    """Builds the wheel of a folder, or of an archive of sources."""
    pip("wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    return wheel


class Installed:
    """The package, installed."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tandem-package-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.wheel = build_wheel(FOLDER, self.folder)
        venv.create(self.folder / "venv", with_pip=False)
        self.python = self.folder / "venv" / "bin" / "python"
        self.site_packages = pathlib.Path(sysconfig.get_path("purelib", vars={"base": str(self.folder / "venv")}))
        (self.site_packages / "build_venv.pth").write_text(sysconfig.get_path("purelib") + "\n")
        pip("--python", self.python, "install", "--quiet", "--no-deps", self.wheel)
        sys.path.insert(0, str(self.site_packages))

    def run(self, *arguments, **options):
        """Runs Python in the environment. Returns what it printed."""
        return run(self.python, *arguments, env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}, **options)


installed = Installed()
