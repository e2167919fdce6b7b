"""The files of a model as the daemon hands them over: sealed memory, verified before."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from edge_agent.bundles import Contents
from edge_agent.description import ModelDescription
from edge_agent.errors import ModelFileError
from edge_agent.types import ModelRef

if TYPE_CHECKING:
    from edge_agent.workers.protocol import LoadModel


class SealedContents(Contents):
    """Implements `Contents`.

    Args:
        command: What is to be loaded.
        descriptors: One a file, in the order that the command names them; this object closes them.

    Raises:
        msgspec.MsgspecError: The description is none.
    """

    def __init__(self, command: LoadModel, descriptors: Sequence[int]) -> None:
        self._descriptors = dict(zip(command.files, descriptors, strict=True))
        self._kept: dict[str, bytes] = {}
        self.ref = ModelRef(command.name, command.version, command.digest)
        try:
            self.description = msgspec.msgpack.decode(command.description, type=ModelDescription)
        except BaseException:
            self.close()
            raise

    def read(self, name: str, max_bytes: int) -> bytes:
        """See `Contents.read`.

        Raises:
            ModelFileError: There is no such file, or it is larger.
        """
        if name in self._kept:
            return self._kept[name]
        descriptor = self._descriptors.get(name)
        if descriptor is None:
            raise ModelFileError("was not handed to the worker", path=name)
        size = os.fstat(descriptor).st_size
        if size > max_bytes:
            raise ModelFileError(f"is larger than {max_bytes} bytes", path=name)
        with open(descriptor, "rb", buffering=0, closefd=False) as file:
            file.seek(0)  # whoever made the memory wrote it through the same position
            return file.read()

    def keep(self, names: Collection[str]) -> None:
        """Closes all files, so that their memory is freed, and keeps copies of some."""
        self._kept = {name: self.read(name, 1 << 62) for name in names}
        self.close()

    def close(self) -> None:
        """Closes all files."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])
