"""Descriptors of Protobuf files: those of Protobuf itself, and a file linked with all that it imports."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

_WELL_KNOWN: Final = re.compile(r"google/protobuf/([a-z_]+)\.proto")


class ImportedFileError(ValueError):
    """A file imports another one that is neither given nor one of Protobuf itself."""


def well_known(name: str) -> FileDescriptorProto:
    """A file of Protobuf itself, such as google/protobuf/timestamp.proto. Raises ImportedFileError."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    match = _WELL_KNOWN.fullmatch(name)
    if match is None:
        raise ImportedFileError(f"it imports {name!r}, which is not one of its references")
    try:
        module = importlib.import_module(f"google.protobuf.{match[1]}_pb2")
    except ModuleNotFoundError:
        raise ImportedFileError(f"it imports {name!r}, which does not exist") from None
    return FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def linked(file: FileDescriptorProto, imported: Mapping[str, FileDescriptorProto]) -> FileDescriptor:
    """A file with all that it imports.

    Raises ImportedFileError; TypeError or KeyError if a type is missing, or the descriptor is damaged.
    """
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    added: set[str] = set()

    def add(each: FileDescriptorProto) -> None:
        if each.name in added:
            return
        added.add(each.name)
        for name in each.dependency:
            add(imported[name] if name in imported else well_known(name))
        pool.AddSerializedFile(each.SerializeToString())

    add(file)
    return pool.FindFileByName(file.name)
