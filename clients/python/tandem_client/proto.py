"""The messages and enumerations of proto/tandem/v1/generate.proto.

The classes are made when this module is imported, from the descriptors that the build of the package wrote (hatch_build.py); the types
are in proto.pyi, which the build writes too. They live in a pool of their own, so a program may also have stubs that it made itself, of
this or of another version of the proto.
"""

from __future__ import annotations

import importlib.resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal import enum_type_wrapper


def _load() -> dict[str, Any]:
    file = importlib.resources.files("tandem_client").joinpath("generate.binpb")
    try:
        descriptors = descriptor_pb2.FileDescriptorSet.FromString(file.read_bytes())
    except FileNotFoundError:
        raise ImportError("tandem_client has no generate.binpb, which its build makes: install the package with pip") from None
    pool = descriptor_pool.DescriptorPool()
    for one in descriptors.file:
        pool.AddSerializedFile(one.SerializeToString())
    description = pool.FindFileByName("tandem/v1/generate.proto")
    names: dict[str, Any] = {"DESCRIPTOR": description}
    for name, message in description.message_types_by_name.items():
        names[name] = message_factory.GetMessageClass(message)
    for name, enumeration in description.enum_types_by_name.items():
        names[name] = enum_type_wrapper.EnumTypeWrapper(enumeration)
        names.update({value.name: value.number for value in enumeration.values})
    return names


globals().update(_load())
