"""What is open for a while: the context manager that closes it."""

from __future__ import annotations

from types import TracebackType
from typing import Self


class Closing:
    """Base of what has to be closed; `with` closes it."""

    def close(self) -> None:
        """Closes it; closing twice does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
