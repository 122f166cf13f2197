"""Makes a Python client's stubs from the proto file in a temporary folder."""

import atexit
import os
import pathlib
import shutil
import sys
import tempfile

import grpc_tools
from grpc_tools import protoc

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]


def make():
    """Makes `tandem.v1` importable."""
    folder = tempfile.mkdtemp(prefix="tandem-stubs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
    code = protoc.main([
        "protoc", f"-I{SOURCE_DIR / 'proto'}", f"-I{well_known}", f"--python_out={folder}", f"--grpc_python_out={folder}",
        "tandem/v1/generate.proto", "tandem/v1/worker.proto"
    ])
    assert code == 0, "the proto files do not compile"
    sys.path.insert(0, folder)
