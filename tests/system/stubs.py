"""Makes a Python client's stubs importable: from the proto files, or from those that an archive of binaries has."""

import atexit
import os
import pathlib
import shutil
import sys
import tempfile

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[2]


def packed():
    """Returns the folder of the stubs among the binaries (the target gpu_check_archive), or None."""
    folder = pathlib.Path(os.environ.get("TANDEM_BINARY_DIR", "")) / "python"
    return folder if (folder / "tandem").is_dir() else None


def make():
    """Makes `tandem.v1` importable. Packed stubs are used only without grpcio-tools, because they may be older than the proto files."""
    try:
        import grpc_tools
        from grpc_tools import protoc
    except ModuleNotFoundError:
        if packed() is None:
            raise
        sys.path.insert(0, str(packed()))
        return
    folder = tempfile.mkdtemp(prefix="tandem-stubs-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
    code = protoc.main([
        "protoc", f"-I{SOURCE_DIR / 'proto'}", f"-I{well_known}", f"--python_out={folder}", f"--grpc_python_out={folder}",
        "tandem/v1/draft_models.proto", "tandem/v1/generate.proto", "tandem/v1/worker.proto"
    ])
    assert code == 0, "the proto files do not compile"
    sys.path.insert(0, folder)
