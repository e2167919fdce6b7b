"""The agent's error tree, whole: leaves are named for what the caller does next.

Only the command line knows exit codes and only the server knows HTTP statuses; an error here
carries facts (what, where, which limit) and one hint that says what to do.
"""


class AgentError(Exception):
    """Base of every error that the agent raises on purpose.

    Attributes:
        message: What went wrong, one sentence without a trailing full stop.
        path: The file or place that it is about, where there is one.
        hint: What to do next, where that is known.
    """

    def __init__(self, message: str, *, path: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.path = path
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path is not None else self.message


class ConfigError(AgentError):
    """The agent's own configuration, or an option on the command line, can't be used."""


class BadInputError(AgentError):
    """What was handed in is at fault; the same request will fail again."""


class ImageError(BadInputError):
    """An image can't be decoded, is damaged, or is larger than the limits allow."""


class TensorError(BadInputError):
    """An input tensor is missing, unreadable, or not of the declared shape, dtype or range."""


class DescriptionError(BadInputError):
    """A model.yaml breaks a rule; ``line`` says where.

    Attributes:
        line: 1-based line in the file, where it is known.
    """

    def __init__(
        self,
        message: str,
        *,
        line: int | None = None,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.line = line

    def __str__(self) -> str:
        place = self.path or "model.yaml"
        return f"{place}:{self.line}: {self.message}" if self.line else f"{place}: {self.message}"


class ModelFileError(BadInputError):
    """An engine refuses the model file, or it isn't what model.yaml says it is."""


class MismatchError(AgentError):
    """A signed statement and the files that it covers contradict each other: not trusted."""


class UnavailableError(AgentError):
    """Nothing here can answer now: the model or every engine for it is missing."""


class ModelNotFoundError(UnavailableError):
    """No installed bundle and no path of that name."""


class EngineUnavailableError(UnavailableError):
    """The engine is not installed here, or does not load."""


class EngineFailedError(UnavailableError):
    """The engine took the input and failed over it: out of memory, or a fault in the model."""


class GoldenMismatchError(UnavailableError):
    """An engine answered the bundle's own golden input wrongly on this machine."""


class ModelNotReadyError(UnavailableError):
    """The model is known here, but not loaded now."""


class OverloadedError(UnavailableError):
    """More is asked for than can be done in time.

    Attributes:
        retry_after_s: When to try again, in seconds.
        is_callers_share: Whether it is the caller's own share that is used up.
    """

    def __init__(
        self,
        message: str,
        *,
        retry_after_s: float,
        is_callers_share: bool = False,
        path: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, path=path, hint=hint)
        self.retry_after_s = retry_after_s
        self.is_callers_share = is_callers_share


class DeadlineExceededError(UnavailableError):
    """The answer would come after the time by which it was wanted."""


class WorkerFailedError(UnavailableError):
    """The process that worked on the request crashed, hung, or used more memory than it may."""


class ThresholdError(AgentError):
    """A measurement lies beyond its threshold: the contract, or an earlier report."""


class StoreError(AgentError):
    """The store of installed bundles can't be read or written."""
