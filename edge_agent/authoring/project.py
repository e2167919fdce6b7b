"""A project: the folder that a bundle is built from, on its author's machine.

It holds a model.yaml and the files that this names, and may hold a ``build.toml`` that says what
the bundle is made from. Nothing here is signed, so only the commands of authoring take it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_agent import model_yaml, yaml_subset
from edge_agent.authoring.recipe import Recipe, read_recipe
from edge_agent.authoring.source_files import require_no_links
from edge_agent.bundles import DESCRIPTION_FILE, Contents, named_files
from edge_agent.errors import BadInputError, DescriptionError, ModelNotFoundError
from edge_agent.files import read_regular
from edge_agent.types import ModelRef
from edge_signing.names import check_name

if TYPE_CHECKING:
    from edge_agent.description import ModelDescription

SIGNATURES: Final = "signatures"


class Project(Contents):
    """A project that is whole enough to run.

    Attributes:
        folder: Where the files lie that go into the bundle.
        home: Where its build.toml lies: elsewhere, where `folder` is a copy.
        recipe: Its build.toml, empty where there is none.
    """

    def __init__(
        self, folder: Path, home: Path | None = None, recipe: Recipe | None = None
    ) -> None:
        self.folder = folder
        self.home = home or folder
        self.recipe = read_recipe(self.home) if recipe is None else recipe
        self.description = _described(folder)
        self.ref = ModelRef(self.description.name, self.description.version, "")

    def read(self, name: str, max_bytes: int) -> bytes:
        """See `Contents.read`; a link is refused, as in a bundle."""
        return read_file(self.folder, name, max_bytes)

    def files(self) -> list[str]:
        """Returns what goes into the bundle, sorted: the files that it names, and their data.

        Raises:
            BadInputError: A model file can't be read.
        """
        names = {DESCRIPTION_FILE, *named_files(self.description), *self.recipe.include}
        for part in self.description.engines:
            if part.engine == "onnx":
                names |= external_names(self.folder / part.file, part.file)
        return sorted(names)

    def reference(self, given: Path | None = None) -> Path | None:
        """Returns the FP32 model to compare with: the one given, or build.toml's."""
        return given or (self.home / self.recipe.reference if self.recipe.reference else None)

    def inputs(self, given: Path | None = None) -> Path | None:
        """Returns the folder of inputs: the one given, or build.toml's."""
        return given or (self.home / self.recipe.inputs if self.recipe.inputs else None)


def is_project(path: Path) -> bool:
    """Tells a project from a bundle: a folder with a model.yaml and no signatures."""
    return os.path.lexists(path / DESCRIPTION_FILE) and not os.path.lexists(path / SIGNATURES)


def open_project(folder: Path) -> Project:
    """Opens a project.

    Raises:
        ModelNotFoundError: There is none.
        DescriptionError: Its model.yaml breaks a rule, or has holes.
        ConfigError: Its build.toml can't be used.
    """
    if not folder.is_dir():
        raise ModelNotFoundError(
            "is no project", path=str(folder), hint="make one: edge-agent bundle init MODEL"
        )
    return Project(folder)


def read_file(folder: Path, name: str, max_bytes: int) -> bytes:
    """Reads a file of a project.

    Raises:
        BadInputError: It isn't there, is no regular file, is too large or lies outside.
    """
    from edge_signing.errors import SigningError

    path = folder / name
    try:
        check_name(name)
        require_no_links(folder, name)
        data = read_regular(path, max_bytes, follow_links=False)
    except SigningError as error:
        raise BadInputError(error.message, path=str(path), hint=error.hint) from error
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror}", path=str(path)) from error
    if len(data) > max_bytes:
        raise BadInputError(f"is larger than {max_bytes} bytes", path=str(path))
    return data


def external_names(path: Path, name: str) -> set[str]:
    """Returns the files of the bundle that an ONNX file keeps its weights in.

    Args:
        path: The ONNX file.
        name: Its path inside the bundle.

    Raises:
        BadInputError: The file can't be read.
        edge_signing.errors.BundleInvalid: It is no ONNX file, or its data lies outside.
    """
    from edge_signing.external_data import external_files, resolve

    try:
        # A pipe of that name must not be waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as stream:
            found = external_files(stream, os.fstat(stream.fileno()).st_size)
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror}", path=str(path)) from error
    return {resolve(name, location) for location in found}


def _described(folder: Path) -> ModelDescription:
    data = read_file(folder, DESCRIPTION_FILE, yaml_subset.MAX_BYTES + 1)
    try:
        return model_yaml.parse(data)
    except DescriptionError as error:
        error.path = str(folder / DESCRIPTION_FILE)
        raise
