"""What is known of a kind of board: how the agent runs on it, and what is native there."""

# Annotations are no strings here: a NamedTuple compiles each that is, half a millisecond in all.
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, Self, TypeAlias

ENGINES: Final = ("onnx", "tflite")
PRECISIONS: Final = ("fp32", "fp16", "int8")
NATIVE: Final = "native"
SLOW: Final = "slow"
UNSUPPORTED: Final = "unsupported"


# How an engine runs one precision: "native" by instructions made for it, "slow" by others or
# converted first, "unsupported" not at all; or the CPU features of which native speed needs one.
Support: TypeAlias = str | tuple[str, ...]


def runs(support: Support, cpu_features: Collection[str]) -> str:
    """Returns ``native``, ``slow`` or ``unsupported`` for a CPU with these features."""
    if isinstance(support, str):
        return support
    return NATIVE if any(one in cpu_features for one in support) else SLOW


class DeviceProfile(NamedTuple):
    """A kind of board.

    Attributes:
        name: Short name, that of its file.
        title: Name for people.
        arch: The kernel's name of the architecture, or ``any``.
        compatible: Device tree names of the boards that it is for.
        models: Product names of the boards that it is for.
        threads: Threads of an engine, at most; 0 means no limit. Once fitted to a machine: how
            many an engine gets there.
        engines: Engines in order of preference.
        min_available_mib: Memory that should be available before a model is loaded, in MiB.
        max_memory_percent: Share of the machine's memory that the agent may use.
        max_latency_ms: An answer that takes longer is too late, in milliseconds.
        min_kernel: Oldest kernel that it is for: major and minor version.
        precisions: Engine, then precision, to how it runs.
        max_memory_mib: Memory that the agent may use, in MiB; None before it is fitted to a
            machine, and where the machine's memory isn't known.
    """

    name: str
    title: str
    arch: str
    compatible: tuple[str, ...]
    models: tuple[str, ...]
    threads: int
    engines: tuple[str, ...]
    min_available_mib: int
    max_memory_percent: int
    max_latency_ms: int
    min_kernel: tuple[int, int]
    precisions: Mapping[str, Mapping[str, Support]]
    max_memory_mib: int | None = None

    def is_for(self, board: str, arch: str) -> bool:
        """Whether it is for a board of this name, on a kernel for this architecture."""
        return self.suits(arch) and (board in self.compatible or board in self.models)

    def suits(self, arch: str) -> bool:
        """Whether it is for this architecture."""
        return self.arch in (arch, "any")

    def fitted(self, cpus: int, memory_bytes: int | None) -> Self:
        """Returns it with the figures of one machine.

        Args:
            cpus: Threads that this process may run at a time, by affinity and cgroup quota.
            memory_bytes: Memory that this process may use; None where it isn't known.
        """
        share = None if memory_bytes is None else memory_bytes * self.max_memory_percent // 100
        return self._replace(
            threads=min(cpus, self.threads) if self.threads else cpus,
            max_memory_mib=None if share is None else max(1, share >> 20),
        )

    def matrix(self, cpu_features: Collection[str]) -> dict[str, dict[str, str]]:
        """Returns what a CPU with these features makes of each engine and precision."""
        return {
            engine: {precision: runs(row[precision], cpu_features) for precision in PRECISIONS}
            for engine, row in self.precisions.items()
        }

    def has_kernel(self, release: str) -> bool | None:
        """Whether a kernel is new enough; None where its release says no version.

        Args:
            release: As ``uname -r`` says it: ``5.15.148-tegra``.
        """
        parts = release.split(".", 2)
        minor = parts[1] if len(parts) > 1 else ""
        digits = minor[: len(minor) - len(minor.lstrip("0123456789"))]
        if not (parts[0].isascii() and parts[0].isdigit() and digits) or len(release) > 256:
            return None
        return (int(parts[0]), int(digits)) >= self.min_kernel
