"""Which engine serves a bundle here: as measured before, or now in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from edge_agent.engine_choice import Measurement, fastest
from edge_agent.errors import AgentError, EngineUnavailableError
from edge_agent.serving import model_files

if TYPE_CHECKING:
    from edge_agent.bundles import Bundle
    from edge_agent.description import EngineFile
    from edge_agent.engine_choice import ChoiceMemory
    from edge_agent.workers.work import Loaded, ModelFiles

Trial = Callable[["ModelFiles"], Awaitable["Loaded"]]


class EngineSelection(Struct, frozen=True):
    """Chooses engines without importing any.

    Attributes:
        stamps: What changes when an engine's package is replaced, by engine in this machine's
            order of preference; None where it isn't installed.
        fingerprint: Of this machine.
        memory: What was measured before.
        trial: Loads a model in a process of its own, which ends with the trial.
        only: The engine that must run everything; None means the fastest.
    """

    stamps: Mapping[str, str | None]
    fingerprint: str
    memory: ChoiceMemory
    trial: Trial
    only: str | None = None

    async def choose(self, bundle: Bundle) -> EngineFile:
        """Returns the engine's entry in the bundle's model.yaml.

        An engine that never ran the bundle on this machine runs it in a process of its own first:
        what crashes there hurts nobody.

        Raises:
            EngineUnavailableError: No engine that is installed here can run it.
            GoldenMismatchError: The only engine answers the golden input wrongly.
            AgentError: What the only engine said.
        """
        parts = self._candidates(bundle)
        known = await asyncio.to_thread(self.memory.recall, bundle.ref.digest, self.fingerprint)
        if all(known.get(part.engine) is None for part in parts):
            known = {}  # none could be used: the trial says why
        measured = [
            Measurement(part.engine, known[part.engine])
            if part.engine in known
            else await self._try(bundle, part)
            for part in parts
        ]
        if any(part.engine not in known for part in parts):
            await self._remember(bundle, measured)
        chosen = fastest(measured)
        return next(part for part in parts if part.engine == chosen)

    def _candidates(self, bundle: Bundle) -> list[EngineFile]:
        declared = {part.engine: part for part in bundle.description.engines}
        order = [name for name in self.stamps if name in declared]
        wanted = [name for name in order if self.only in (None, name)]
        there = [declared[name] for name in wanted if self.stamps[name]]
        if there:
            return there
        missing = ", ".join(declared)
        raise EngineUnavailableError(
            f"{bundle.ref.name} has files for {missing}, which can't run here",
            hint="edge-agent doctor shows what is missing",
        )

    async def _try(self, bundle: Bundle, part: EngineFile) -> Measurement:
        files = await asyncio.to_thread(model_files.seal, bundle, part)
        try:
            loaded = await self.trial(files)
        except AgentError as error:
            return Measurement(part.engine, None, error)
        finally:
            model_files.close(files)
        return Measurement(part.engine, loaded.run_ms)

    async def _remember(self, bundle: Bundle, measured: Sequence[Measurement]) -> None:
        try:
            await asyncio.to_thread(
                self.memory.remember, bundle.ref.digest, self.fingerprint, measured
            )
        except OSError:
            return  # it is measured again next time
