"""The step of the build that makes the messages from the proto, which is their only source.

A wheel gets two files in `tandem_client`: `generate.binpb`, the descriptors that `proto.py` makes its classes from, and `proto.pyi`, their
types. Code that protoc generates would need a protobuf of nearly its own version, and descriptors do not. An archive of the sources gets
the proto itself. An editable installation gets the two files beside the sources, where git ignores them.
"""

import pathlib
import tempfile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROTO = "tandem/v1/generate.proto"


def source_folder(root: pathlib.Path) -> pathlib.Path:
    """Returns the folder that has `proto` and LICENSE: this one in an archive of the sources, and otherwise the root of the checkout."""
    for folder in (root, root.parent.parent):
        if (folder / "proto" / PROTO).is_file():
            return folder
    raise FileNotFoundError(f"proto/{PROTO} is neither here nor at the root of a checkout of Tandem")


def generate(protos: pathlib.Path, folder: pathlib.Path) -> None:
    """Writes generate.binpb and proto.pyi into `folder`."""
    from grpc_tools import protoc

    made = folder / pathlib.Path(PROTO).with_name("generate_pb2.pyi")
    arguments = ["protoc", f"-I{protos}", f"--descriptor_set_out={folder / 'generate.binpb'}", f"--pyi_out={folder}", PROTO]
    if protoc.main(arguments) != 0:
        raise RuntimeError(f"{PROTO} does not compile")
    # The types that protoc writes are good, and not strict.
    (folder / "proto.pyi").write_text("# mypy: ignore-errors\n" + made.read_text())
    made.unlink()
    for parent in (made.parent, made.parent.parent):
        parent.rmdir()


class CustomBuildHook(BuildHookInterface):  # hatchling finds the class by its base

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = pathlib.Path(self.root)
        sources = source_folder(root)
        added = build_data["force_include"]
        if self.target_name == "sdist":
            added[str(sources / "proto" / PROTO)] = f"proto/{PROTO}"
            added[str(sources / "LICENSE")] = "LICENSE"
            return
        if version == "editable":
            generate(sources / "proto", root / "tandem_client")
            return
        self._made = tempfile.TemporaryDirectory(prefix="tandem-client-")
        generate(sources / "proto", pathlib.Path(self._made.name))
        for name in ("generate.binpb", "proto.pyi"):
            added[f"{self._made.name}/{name}"] = f"tandem_client/{name}"
        added[str(sources / "LICENSE")] = "tandem_client/LICENSE"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_made"):
            self._made.cleanup()
