"""Image file -> upright 8-bit RGB, or an error that says why not."""

from __future__ import annotations

import importlib
import io
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from PIL import Image, ImageFile, features

from edge_agent.errors import ImageError
from edge_agent.image_files import flatten
from edge_agent.image_files.contents import AGAIN, Contents, check_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from PIL.Image import Image as Picture

Size: TypeAlias = tuple[int, int]
ACCEPTED: Final = "JPEG, PNG, WebP, AVIF, GIF, BMP, TIFF, PPM"

# What Pillow's decoders are known to raise for hostile bytes; a warning is one only where
# somebody turned warnings into errors.
_FAULTS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    EOFError,
    Image.DecompressionBombError,
    LookupError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,
    struct.error,
    zlib.error,
)

_Transpose = Image.Transpose
# Source: EXIF 2.32, "Orientation": what brings each value upright.
_UPRIGHT: Final = {
    2: _Transpose.FLIP_LEFT_RIGHT,
    3: _Transpose.ROTATE_180,
    4: _Transpose.FLIP_TOP_BOTTOM,
    5: _Transpose.TRANSPOSE,
    6: _Transpose.ROTATE_270,
    7: _Transpose.TRANSVERSE,
    8: _Transpose.ROTATE_90,
}
_SIDEWAYS: Final = range(5, 9)


class ImageLimits(NamedTuple):
    """How large an image may be.

    Attributes:
        max_bytes: Bytes of the file.
        max_pixels: Width times height, checked before any pixel is decoded. This also bounds
            memory. Measured with 64 million pixels, the file included: 880 MB for WebP and
            AVIF, 650 MB for progressive JPEG, 600 MB for transparent PNG, 300 to 500 MB for others.
    """

    max_bytes: int = 64 * 1024 * 1024
    max_pixels: int = 64_000_000


class _Format(NamedTuple):
    """One accepted format, imported when a file of it comes: most gateways see but one.

    Attributes:
        name: As Pillow's plugin is called.
        container: Our file that checks the container.
        feature: What Pillow must have been built with.
    """

    name: str
    container: str
    feature: str | None = None

    def read(self, data: bytes, max_pixels: int) -> Contents:
        """Checks the container."""
        contents: Contents = self.module().read(data, max_pixels)
        return contents

    def module(self) -> Any:
        """Returns our file for it."""
        return importlib.import_module(f"edge_agent.image_files.{self.container}")

    def open(self, data: bytes) -> ImageFile.ImageFile:
        """Opens it by its class: `Image.open` would warn and refuse by a global pixel limit."""
        module = importlib.import_module(f"PIL.{self.name}ImagePlugin")
        opened: ImageFile.ImageFile = getattr(module, f"{self.name}ImageFile")(io.BytesIO(data))
        return opened


_JPEG: Final = _Format("Jpeg", "jpeg")
_PNG: Final = _Format("Png", "png")
_GIF: Final = _Format("Gif", "gif")
_TIFF: Final = _Format("Tiff", "tiff")
_BMP: Final = _Format("Bmp", "bmp")
_NETPBM: Final = _Format("Ppm", "netpbm")
_WEBP: Final = _Format("WebP", "webp", "webp")
_AVIF: Final = _Format("Avif", "avif", "avif")
_SIGNATURES: Final = (
    (b"\xff\xd8\xff", _JPEG),
    (b"\x89PNG\r\n\x1a\n", _PNG),
    (b"GIF87a", _GIF),
    (b"GIF89a", _GIF),
    (b"II*\0", _TIFF),
    (b"MM\0*", _TIFF),
    (b"II+\0", _TIFF),
    (b"MM\0+", _TIFF),
    (b"BM", _BMP),
    *((b"P" + digit, _NETPBM) for digit in (b"1", b"2", b"3", b"4", b"5", b"6", b"f")),
)


def decode(
    data: bytes, name: str, limits: ImageLimits, background: tuple[int, int, int]
) -> Picture:
    """Decodes the first frame of an image file as a viewer shows it.

    JPEG (and the first picture of an MPO), PNG, WebP, AVIF, GIF, BMP (not run-length coded),
    TIFF and binary PBM, PGM and PPM are taken, nothing else is tried. The orientation of EXIF
    is applied (AVIF: of its own boxes); an EXIF block that can't be parsed counts as upright.
    Colour profiles are not applied. 16-bit grayscale is scaled with rounding; of 16-bit colour,
    Pillow keeps the high byte.

    A picture is never made from damage that shows: PNG checksums, sizes that the container
    announces, missing ends, zero-filled tails of formats that can't end so. What can't show:
    bit errors in the data of JPEG (libjpeg only warns, and Pillow hides it), WebP, AVIF, GIF,
    BMP, PPM and most TIFF; a zero-filled tail of BMP, PPM and uncompressed TIFF, and in WebP of
    less than half of the picture. A digest of the whole file finds all of these.

    Pillow's global pixel limit plays no part, but for WebP in Pillow 13 and later, which refuse
    more than twice that limit (179 million unless someone changed it) whatever ``limits`` say.

    Args:
        data: The file's bytes.
        name: What to call it in errors.
        limits: Largest file and picture.
        background: RGB colour under transparent pixels, 0..255.

    Returns:
        An image of mode ``RGB``, upright.

    Raises:
        ImageError: It is empty, of no accepted format, damaged, cut short, or too large.
    """
    return decode_at_least(data, name, limits, background, None)[0]


def decode_at_least(
    data: bytes,
    name: str,
    limits: ImageLimits,
    background: tuple[int, int, int],
    enough: Callable[[Size], Size] | None,
) -> tuple[Picture, Size]:
    """As `decode`, but a JPEG is decoded at 1/2, 1/4 or 1/8 of its size where that is enough.

    libjpeg leaves out the finer frequencies of each block (Pillow's ``draft``): about twice as
    fast, with other pixels than scaling the whole picture down. Everything is checked as ever.

    Args:
        data: See `decode`, and so on.
        name: See `decode`.
        limits: See `decode`; they are about the whole picture.
        background: See `decode`.
        enough: Makes of (width, height) of the whole picture, upright, the least size that is
            needed; None for the whole picture.

    Returns:
        The image, and (width, height) of the whole picture, upright.

    Raises:
        ImageError: See `decode`.
    """
    try:
        return _decode(data, limits, background, enough)
    except ImageError as error:
        raise ImageError(error.message, path=name, hint=error.hint) from error
    except MemoryError as error:
        raise ImageError(
            "decoding it needs more memory than there is", path=name, hint="scale it down"
        ) from error
    except _FAULTS as error:
        reason = str(error) or type(error).__name__
        raise ImageError(f"the file is damaged: {reason}", path=name, hint=AGAIN) from error


def _decode(
    data: bytes,
    limits: ImageLimits,
    background: tuple[int, int, int],
    enough: Callable[[Size], Size] | None,
) -> tuple[Picture, Size]:
    if not data:
        raise ImageError("the file is empty", hint=AGAIN)
    if len(data) > limits.max_bytes:
        raise ImageError(
            f"the file has {len(data)} bytes, more than the limit of {limits.max_bytes}",
            hint="scale it down, or raise max_image_mib in config.toml",
        )
    if ImageFile.LOAD_TRUNCATED_IMAGES:
        raise ImageError(
            "PIL.ImageFile.LOAD_TRUNCATED_IMAGES is set, so that damage would go unseen",
            hint="leave it False in this process",
        )
    kind = _identify(data)
    contents = kind.read(data, limits.max_pixels)
    orientation = contents.orientation
    image = kind.open(contents.data)
    check_size(*image.size, limits.max_pixels)
    whole = _turned(image.size, orientation) if kind is _JPEG else None
    if whole and enough and contents.is_scalable:
        image.draft(None, _turned(enough(whole), orientation))
    _load(image, kind)
    if kind is _AVIF:
        # Pillow reports the file's own rotation as a fresh EXIF block.
        from edge_agent.image_files import exif

        orientation = exif.orientation(image.info.get("exif", b""))
    scale, canvas = flatten.Scale(contents.white, contents.inverted), contents.canvas
    # Large ones are let go as soon as the next is made.
    del contents
    picture = flatten.to_rgb(image, scale, background)
    del image
    if canvas is not None:
        frame, picture = picture, Image.new("RGB", (canvas.width, canvas.height), background)
        picture.paste(frame, (canvas.left, canvas.top))
        del frame
    turn = _UPRIGHT.get(orientation)
    upright = picture if turn is None else picture.transpose(turn)
    return upright, whole or upright.size


def _turned(size: Size, orientation: int) -> Size:
    return size[::-1] if orientation in _SIDEWAYS else size


def _load(image: ImageFile.ImageFile, kind: _Format) -> None:
    """Decodes the pixels, and lets go of the decoder and the file's bytes."""
    if kind is _TIFF:
        # Pillow would allocate this itself, but warn by its global pixel limit.
        image.im = Image.new(image.mode, image.size).im
    if kind is _WEBP or kind is _AVIF:
        kind.module().decode_once(image)
    image.load()
    image.fp = None


def _identify(data: bytes) -> _Format:
    found = next((kind for start, kind in _SIGNATURES if data.startswith(start)), None)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        found = _WEBP
    brands = data[8 : int.from_bytes(data[:4], "big")] if data[4:8] == b"ftyp" else b""
    if b"avif" in brands or b"avis" in brands:
        found = _AVIF
    if found is None:
        what = "HEIC is not accepted" if brands[:2] in (b"he", b"mi", b"ms") else "not an image"
        raise ImageError(
            f"{what}: accepted are {ACCEPTED}", hint="convert it to one of these formats"
        )
    # Older Pillows don't even know the name, and `features.check` would warn of it.
    if found.feature and not (
        found.feature in features.modules and features.check_module(found.feature)
    ):
        raise ImageError(
            f"this build of Pillow can't read {found.name}", hint="convert it to JPEG or PNG"
        )
    return found
