"""Containers of image files: each module checks one and strips what decides no pixel.

What reaches Pillow afterwards holds no EXIF, text, profile or later frame, so that none of its
parsers for those (and none of their warnings, bombs and loops) ever sees a stranger's bytes.
"""

from typing import Final

IMAGE_ENDINGS: Final = (
    ".apng", ".avif", ".bmp", ".gif", ".jfif", ".jpe", ".jpeg", ".jpg", ".pbm", ".pgm", ".png",
    ".pnm", ".ppm", ".tif", ".tiff", ".webp",
)  # fmt: skip
