"""Which profile fits this machine: named by its owner, by its board, or by its architecture."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from edge_profiles import board, profile_file
from edge_profiles.errors import ProfileError
from edge_profiles.profile import DeviceProfile

AUTO: Final = "auto"
SHIPPED: Final = Path(__file__).parent / "boards"
_ENDING: Final = ".toml"
_GENERIC: Final = {
    "aarch64": "generic-arm64",
    "riscv64": "generic-riscv64",
    "x86_64": "generic-x86-64",
}
_LAST_RESORT: Final = "generic"

Guard = Callable[[Path], None]


class Selection:
    """A profile, and how it came to be chosen.

    Attributes:
        profile: As its file says, not yet fitted to a machine.
        reason: Why this one, as part of a sentence.
        file: Where it stands.
    """

    def __init__(self, profile: DeviceProfile, reason: str, file: Path) -> None:
        self.profile = profile
        self.reason = reason
        self.file = file


def select(
    name: str = AUTO,
    own: Path | None = None,
    guard: Guard | None = None,
    *,
    root: Path = Path("/"),
    arch: str | None = None,
) -> Selection:
    """Chooses a profile.

    A profile of the owner's comes before the shipped one of that name, and before any shipped
    one that has a name of the same board.

    Args:
        name: Its name; ``auto`` goes by the board, then by the architecture.
        own: Folder of the owner's profiles, which needn't exist.
        guard: Asked of the folder that holds `own`, of `own`, and of each file there before it is
            read; it raises to refuse.
        root: Where ``proc`` and ``sys`` stand; another one than ``/`` is for tests.
        arch: The kernel's name of the architecture; None asks the kernel.

    Raises:
        ProfileError: There is none of that name, or a file can't be used.
    """
    library = _Library(own, guard)
    if name != AUTO:
        return library.get(name, "as configured")
    arch = arch or os.uname().machine
    called = board.names(root, arch)
    return library.for_board(called, arch) or library.for_architecture(called, arch)


class _Library:
    """The owner's profiles, and the shipped ones behind them."""

    def __init__(self, own: Path | None, guard: Guard | None) -> None:
        self._guard = guard
        self._own = self._own_files(own) if own else {}

    def get(self, name: str, reason: str) -> Selection:
        file = self._own.get(name, SHIPPED / f"{name}{_ENDING}")
        if not profile_file.is_name(name) or not file.is_file():
            known = ", ".join(sorted({*self._own, *_names_in(SHIPPED)}))
            raise ProfileError(f"there is no device profile {name!r}", hint=f"there are {known}")
        return Selection(self._parsed(name, file), reason, file)

    def for_board(self, called: tuple[str, ...], arch: str) -> Selection | None:
        """Returns the profile with the most exact name of the board; the owner's come first."""
        for files in (self._own.items(), self._shipped_that_mention(called)):
            profiles = [(self._parsed(name, file), file) for name, file in files]
            for one in called:
                for profile, file in profiles:
                    if profile.is_for(one, arch):
                        return Selection(profile, f"the board says {one}", file)
        return None

    def for_architecture(self, called: tuple[str, ...], arch: str) -> Selection:
        said = f"no profile is for {called[0]}" if called else "the board doesn't say what it is"
        return self.get(_GENERIC.get(arch, _LAST_RESORT), f"{said}; the processor is {arch}")

    def _shipped_that_mention(self, called: tuple[str, ...]) -> Iterator[tuple[str, Path]]:
        """Yields the shipped files with any of the names in them; others needn't be parsed."""
        for name in sorted(_names_in(SHIPPED)) if called else ():
            file = SHIPPED / f"{name}{_ENDING}"
            if name not in self._own:
                text = profile_file.read_file(file)
                if any(f'"{one}"' in text for one in called):
                    yield name, file

    def _own_files(self, folder: Path) -> dict[str, Path]:
        if self._guard:
            self._guard(folder.parent)
            self._guard(folder)
        return {name: folder / f"{name}{_ENDING}" for name in sorted(_names_in(folder))}

    def _parsed(self, name: str, file: Path) -> DeviceProfile:
        if name in self._own and self._guard:
            self._guard(file)
        return profile_file.parse(profile_file.read_file(file), file)


def _names_in(folder: Path) -> list[str]:
    """Returns the names of the profiles in a folder; a missing one has none."""
    try:
        found = [one.name for one in folder.iterdir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ProfileError(f"can't be read: {error.strerror}", path=str(folder)) from error
    return [
        one.removesuffix(_ENDING)
        for one in found
        if one.endswith(_ENDING) and not one.startswith(".")
    ]
