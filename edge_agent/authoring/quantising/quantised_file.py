"""Where a quantised model goes in its project, and what changes there for it."""

from __future__ import annotations

import errno
import os
import re
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from edge_agent import model_yaml, yaml_subset
from edge_agent.authoring import recipe as recipes
from edge_agent.authoring import sections
from edge_agent.authoring.source_files import require_no_links
from edge_agent.bundles import DESCRIPTION_FILE, Contents, named_files
from edge_agent.description import digest_of_pipeline
from edge_agent.errors import ConfigError
from edge_agent.files import read_regular
from edge_agent.types import ModelRef
from edge_signing.durable import create_durably, write_durably

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from edge_agent.authoring.project import Project
    from edge_agent.authoring.quantising.quantiser import Scheme
    from edge_agent.description import EngineFile

_FLOAT_ENDING: Final = re.compile(r"[-_.](fp32|f32|float32|float)$", re.IGNORECASE)


class Draft(Contents):
    """A project whose ONNX file is another one, which needn't be on the disk; no other engine.

    Args:
        project: The project.
        entry: The file's entry in model.yaml.
        data: The file.
    """

    def __init__(self, project: Project, entry: EngineFile, data: bytes) -> None:
        described = project.description
        self.description = msgspec.structs.replace(
            described, engines=(entry,), pipeline_digest=None
        )
        self.ref = ModelRef(described.name, described.version, "")
        self._project = project
        self._name = entry.file
        self._data = data

    def read(self, name: str, max_bytes: int) -> bytes:
        """See `Contents.read`."""
        return self._data if name == self._name else self._project.read(name, max_bytes)


def choose_name(project: Project, reference: Path, scheme: Scheme, given: str | None) -> str:
    """Returns the quantised file's path inside the project; `publish` may have to number it.

    Args:
        project: The project.
        reference: The float model.
        scheme: How it is quantised, for the name.
        given: The path that is asked for.

    Raises:
        ConfigError: It can't be one, or is that of a file that the project has, unless that is the
            one which model.yaml names for ONNX.
    """
    from edge_signing.errors import SigningError
    from edge_signing.names import check_name

    stem = _FLOAT_ENDING.sub("", reference.stem)
    name = (
        given
        if given is not None
        else f"weights/{stem}-{scheme.types}{'' if scheme.per_channel else '-pt'}.onnx"
    )
    hint = "say --output weights/NAME.onnx"
    try:
        check_name(name)
    except SigningError as error:
        raise ConfigError(f"the new file can't be {name!r}: {error}", hint=hint) from error
    own = project.description.engine("onnx")
    others = set(named_files(project.description)) - {own.file if own else ""}
    target = project.folder / name
    if not name.endswith(".onnx") or name in others or _are_one(target, reference):
        raise ConfigError(f"the new file can't be {name!r}", hint=hint)
    is_own = own is not None and own.file == name
    if given is not None and os.path.lexists(target) and not is_own:
        raise ConfigError(
            "is there already", path=str(target), hint="remove it, or choose another --output"
        )
    return name


def require_writable(project: Project, name: str) -> None:
    """Checks beforehand that the project can be changed, and nothing outside would be.

    Raises:
        BadInputError: A part of the file's path is a link.
        OSError: It can't.
    """
    require_no_links(project.folder, name)
    place = (project.folder / name).parent
    while not os.path.lexists(place):
        place = place.parent
    for folder in (place, project.folder):
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "can't be written", str(folder))


def described_with(data: bytes, entry: EngineFile) -> bytes:
    """Returns a model.yaml whose ONNX file is another one; what stays, stays byte for byte.

    Args:
        data: The model.yaml.
        entry: The file's entry.

    Raises:
        DescriptionError: It can't be changed.
    """
    model_yaml.parse(data)
    value = yaml_subset.load(data)[0]
    made = sections.replace(data, "engines", _engines(value["engines"], entry))
    if "pipeline_digest" in value:
        without = model_yaml.parse(sections.replace(made, "pipeline_digest", None))
        made = sections.replace(made, "pipeline_digest", digest_of_pipeline(without))
    model_yaml.parse(made)
    return made


def require_changeable(project: Project, entry: EngineFile) -> None:
    """Checks beforehand that the project's model.yaml can name another file.

    Raises:
        DescriptionError: It can't.
    """
    described_with(_description(project), entry)


def publish(
    project: Project,
    entry: EngineFile,
    data: bytes,
    reference: Path,
    inputs: Path | None = None,
) -> str:
    """Puts the quantised model into the project; a file that is there stays as it is.

    A crash between two of the steps leaves a project that works as before: first the weights are
    there, under a name that nothing has, then build.toml names their reference, and only then
    model.yaml names them. A step that fails takes the earlier ones back.

    Args:
        project: The project.
        entry: The file's entry in model.yaml.
        data: The file.
        reference: The float model.
        inputs: The samples that it was calibrated on; recorded where build.toml names none.

    Returns:
        The file's path inside the project: that of the entry, with a number where another file has
        that name.

    Raises:
        BadInputError: A part of the file's path is a link.
        ConfigError: The build.toml can't be changed.
        DescriptionError: The model.yaml can't be changed.
        OSError: Something can't be written.
    """
    folder = project.folder
    name = _free_name(folder, entry.file, data)
    require_no_links(folder, name)
    described = described_with(_description(project), msgspec.structs.replace(entry, file=name))
    recipe = recipes.read_recipe(folder)
    changes: dict[str, str] = {}
    if not (recipe.reference and _are_one(folder / recipe.reference, reference)):
        changes["reference"] = _relative(reference, folder)
    if inputs and not recipe.inputs:
        changes["inputs"] = _relative(inputs, folder)
    with _taken_back(folder / DESCRIPTION_FILE, described) as undo:
        _create(folder / name, data, undo)
        if changes:
            _change_recipe(folder, changes, undo)
        write_durably(folder / DESCRIPTION_FILE, described)
    return name


def superseded(project: Project, name: str, reference: Path) -> str | None:
    """Returns the file that model.yaml named for ONNX before and that nothing needs now.

    Args:
        project: The project as it was.
        name: What model.yaml names now.
        reference: The float model.
    """
    own = project.description.engine("onnx")
    if own is None or own.file == name or _are_one(project.folder / own.file, reference):
        return None
    return own.file


@contextmanager
def _taken_back(path: Path, described: bytes) -> Iterator[ExitStack]:
    """Undoes what the block did, if it fails before the model.yaml is the new one.

    Args:
        path: The model.yaml.
        described: The new one. A failure after it has its name must not take away what it names.
    """
    with ExitStack() as undo:
        try:
            yield undo
        except BaseException:
            if _holds(path, described):
                undo.pop_all()
            raise
        undo.pop_all()


def _create(path: Path, data: bytes, undo: ExitStack) -> None:
    """Writes a file, unless it is there, and the folders that it needs."""
    for folder in reversed([one for one in path.parents if not os.path.lexists(one)]):
        folder.mkdir(exist_ok=True)
        undo.callback(_try, folder.rmdir)
    if not os.path.lexists(path):
        create_durably(path, data)
        undo.callback(_try, path.unlink)


def _change_recipe(folder: Path, changes: dict[str, str], undo: ExitStack) -> None:
    path = folder / recipes.RECIPE_FILE
    if os.path.lexists(path):
        undo.callback(_try, write_durably, path, path.read_bytes())
    else:
        undo.callback(_try, path.unlink)
    recipes.change_recipe(folder, **changes)


def _try(step: Callable[..., object], *arguments: object) -> None:
    with suppress(OSError):  # what made it necessary is what its author must know
        step(*arguments)


def _free_name(folder: Path, name: str, data: bytes) -> str:
    """Returns the name, or with the next number one that no file with other content has."""
    stem, found, count = name.removesuffix(".onnx"), name, 1
    while os.path.lexists(folder / found) and not _holds(folder / found, data):
        count += 1
        found = f"{stem}-{count}.onnx"
    return found


def _holds(path: Path, data: bytes) -> bool:
    try:
        return read_regular(path, len(data), follow_links=False) == data
    except OSError:
        return False


def _description(project: Project) -> bytes:
    return project.read(DESCRIPTION_FILE, yaml_subset.MAX_BYTES + 1)


def _engines(before: list[dict[str, Any]], entry: EngineFile) -> list[dict[str, Any]]:
    given: dict[str, Any] = msgspec.to_builtins(entry)
    mine = {key: value for key, value in given.items() if value}
    if not any(one["engine"] == "onnx" for one in before):
        return [mine, *before]
    return [mine if one["engine"] == "onnx" else one for one in before]


def _relative(path: Path, folder: Path) -> str:
    return os.path.relpath(os.path.realpath(path), os.path.realpath(folder))


def _are_one(path: Path, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)
