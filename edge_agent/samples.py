"""Sample inputs of a model in a folder: what calibration, the drift gate and the bench run on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_agent.errors import BadInputError
from edge_agent.files import read_regular
from edge_agent.image_files import IMAGE_ENDINGS
from edge_agent.types import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from edge_agent.bundles import Contents
    from edge_agent.images import ImageLimits

# Over so many inputs answers are compared, unless somebody says otherwise.
USUAL_COUNT: Final = 200
TENSOR_ENDINGS: Final = (".npy", ".npz", ".json")


def files(contents: Contents, place: Path, at_most: int) -> list[Path]:
    """Finds the sample inputs in a folder, without those in folders below.

    Args:
        contents: The model. One that takes an image is given images and ``.npz`` files, another
            one ``.npz`` and ``.json`` files that hold each input by its name; where it has one
            input, also ``.npy``.
        place: The folder, or one file.
        at_most: How many; where there are more, these are spread evenly over the sorted names.

    Raises:
        BadInputError: There are none, or the folder can't be read.
    """
    if place.is_file():
        return [place]
    endings = _endings(contents)
    try:
        names = sorted(one for one in place.iterdir() if one.suffix.lower() in endings)
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror}", path=str(place)) from error
    found = [one for one in names if one.is_file()]
    if not found:
        raise BadInputError(
            "has no input that this model takes",
            path=str(place),
            hint=f"it takes files that end in {', '.join(endings)}",
        )
    return spread(found, at_most)


def spread(files: Sequence[Path], at_most: int) -> list[Path]:
    """Returns at most so many of the files, evenly spread."""
    count = min(len(files), at_most)
    return [files[index * len(files) // count] for index in range(count)]


def request(contents: Contents, file: Path, limits: ImageLimits) -> Request:
    """Reads one sample input.

    Raises:
        BadInputError: It can't be read, or isn't as the model describes its inputs.
    """
    from edge_agent import tensors

    is_tensor = file.suffix.lower() in TENSOR_ENDINGS
    data = _read(file, tensors.MAX_BYTES if is_tensor else limits.max_bytes)
    if not is_tensor:
        return Request(contents.ref.name, str(file), image=data)
    specs = contents.description.inputs
    if len(specs) > 1:
        _require_names(data, file, [spec.name for spec in specs])
    values = {spec.name: tensors.read(data, str(file), spec) for spec in specs}
    return Request(contents.ref.name, str(file), tensors=values)


def _require_names(data: bytes, file: Path, names: list[str]) -> None:
    """Refuses one array without a name: it would feed every input that has its shape."""
    import io
    import zipfile

    ending = file.suffix.lower()
    named = ending == ".json" and data.lstrip().startswith(b"{")
    if ending == ".npz":
        try:
            named = {f"{name}.npy" for name in names} <= {
                *zipfile.ZipFile(io.BytesIO(data)).namelist()
            }
        except (zipfile.BadZipFile, ValueError, NotImplementedError):
            return  # reading it says what is wrong
    if not named:
        raise BadInputError(
            f"has no array of its own for each of the inputs {', '.join(names)}",
            path=str(file),
            hint="save them with numpy.savez(FILE, NAME=array, …)",
        )


def _endings(contents: Contents) -> tuple[str, ...]:
    several = len(contents.description.inputs) > 1
    tensors = (".npz", ".json") if several else TENSOR_ENDINGS
    return (*IMAGE_ENDINGS, ".npz") if contents.description.preprocess else tensors


def _read(file: Path, max_bytes: int) -> bytes:
    try:
        data = read_regular(file, max_bytes)
    except OSError as error:
        raise BadInputError(f"can't be read: {error.strerror}", path=str(file)) from error
    if len(data) > max_bytes:
        raise BadInputError(f"is larger than {max_bytes >> 20} MiB", path=str(file))
    return data
