"""``build.toml``: what a bundle is made from."""

from __future__ import annotations

import re
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from edge_agent.errors import ConfigError
from edge_agent.files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

RECIPE_FILE: Final = "build.toml"
_MAX_BYTES: Final = 64 * 1024
_HEAD: Final = "# What the bundle is made from; paths are relative to this folder.\n"
_Path = Annotated[str, Meta(pattern="^[^\0]*$")]


class Recipe(Struct, frozen=True, forbid_unknown_fields=True):
    """A build.toml. Paths are relative to the project's folder.

    Attributes:
        reference: The FP32 model (.onnx or .tflite) that answers are compared with.
        inputs: Folder of images, or of .npz and .npy files, for calibration and the drift gate.
        include: Further files of the project that go into the bundle, such as a licence.
    """

    reference: _Path | None = None
    inputs: _Path | None = None
    include: tuple[_Path, ...] = ()


def read_recipe(folder: Path) -> Recipe:
    """Reads a build.toml; a missing one is empty.

    Raises:
        ConfigError: It can't be read, or has an unknown key or a wrong value.
    """
    return _parse(_read(folder), folder)


def change_recipe(folder: Path, **changes: str | tuple[str, ...]) -> None:
    """Sets keys of a build.toml; what else stands in it stays, comments too.

    Args:
        folder: The project.
        **changes: New values by key.

    Raises:
        ConfigError: The file that is there can't be used, or a value in it spans several lines.
        OSError: It can't be written.
    """
    from edge_signing.durable import write_durably

    data = _read(folder)
    wanted = msgspec.structs.replace(_parse(data, folder), **changes)
    text = data.decode("utf-8") or _HEAD
    for key, value in changes.items():
        text = _with(text, key, f"{key} = {_toml(value)}")
    try:
        made = text.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            "can't hold a path that isn't UTF-8", path=str(folder / RECIPE_FILE)
        ) from error
    if _parse(made, folder) != wanted:
        raise ConfigError(
            "can't be changed in this style",
            path=str(folder / RECIPE_FILE),
            hint=f"write {', '.join(changes)} on one line each",
        )
    write_durably(folder / RECIPE_FILE, made)


def _toml(value: str | tuple[str, ...]) -> str:
    """Returns a string, or a list of strings; JSON's are TOML's, but for surrogates and DEL."""
    return dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _with(text: str, key: str, line: str) -> str:
    changed, count = re.subn(rf"(?m)^{key}[ \t]*=.*$", lambda _: line, text, count=1)
    if count:
        return changed
    return text + ("" if text.endswith("\n") else "\n") + line + "\n"


def _read(folder: Path) -> bytes:
    path = folder / RECIPE_FILE
    try:
        data = read_regular(path, _MAX_BYTES, follow_links=False)
    except FileNotFoundError:
        return b""
    except OSError as error:
        reason = "is a symbolic link" if path.is_symlink() else f"can't be read: {error.strerror}"
        raise ConfigError(reason, path=str(path)) from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"is larger than {_MAX_BYTES} bytes", path=str(path))
    return data


def _parse(data: bytes, folder: Path) -> Recipe:
    import tomllib

    try:
        value: dict[str, Any] = tomllib.loads(data.decode("utf-8"))
        return msgspec.convert(value, Recipe)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(str(error), path=str(folder / RECIPE_FILE)) from error
