"""Makes the client's stubs from the proto files before any test module is imported."""

import atexit
import os
import pathlib
import shutil
import sys
import tempfile

import grpc_tools
from grpc_tools import protoc

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]


def _make_stubs():
    folder = tempfile.mkdtemp(prefix="tandem-stubs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
    code = protoc.main([
        "protoc", f"-I{SOURCE_DIR / 'proto'}", f"-I{well_known}", f"--python_out={folder}", f"--grpc_python_out={folder}",
        "tandem/v1/generate.proto"
    ])
    assert code == 0, "the proto files do not compile"
    sys.path.insert(0, folder)


_make_stubs()

import pytest  # noqa: E402

import harness  # noqa: E402


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """Starts servers on first use and keeps them for the module: servers(draft=..., ...) -> harness.Server."""
    running = {}

    def get(**options):
        key = tuple(sorted(options.items()))
        if key not in running:
            running[key] = harness.Server(tmp_path_factory.mktemp("server"), **options)
        return running[key]

    yield get
    for server in running.values():
        server.stop()


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    return harness.Models(tmp_path_factory.mktemp("models"))
