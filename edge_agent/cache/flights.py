"""Which calls in the air ask exactly the same, so that one run may answer them all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edge_agent.cache.admission import Patience

if TYPE_CHECKING:
    from edge_agent.cache.tickets import Hasher, Ticket


class Flight:
    """Calls with equal keys. Usable as a key of a dict: only a flight equals itself.

    Attributes:
        ticket: The first call's.
        callers: How many calls are in it.
    """

    __slots__ = ("callers", "ticket")

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.callers = 1


class Flights:
    """The calls in the air.

    Only where two fingerprints are equal, both inputs are hashed (the first one's query is still
    held), and only equal full keys join: a lone call pays for no digest.
    """

    def __init__(self, hasher: Hasher) -> None:
        self._hasher = hasher
        self._patience = Patience()
        self._in_air: dict[int, list[Flight]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._in_air.values()))

    async def enter(self, ticket: Ticket) -> Flight:
        """Returns the flight of calls that ask the same, a new one where there is none.

        Args:
            ticket: The call's; `leave` its flight when it has been answered, or given up.
        """
        if ticket.fingerprint in self._in_air and (ticket.key or self._patience.lasts()):
            twin = await self._twin(ticket)
            self._patience.learn(twin is not None)
            if twin is not None:
                twin.callers += 1
                return twin
        flight = Flight(ticket)
        self._in_air.setdefault(ticket.fingerprint, []).append(flight)
        return flight

    def leave(self, flight: Flight) -> None:
        """Takes one call out of its flight; the last one ends it."""
        flight.callers -= 1
        if flight.callers == 0:
            others = self._in_air[flight.ticket.fingerprint]
            others.remove(flight)
            if not others:
                del self._in_air[flight.ticket.fingerprint]

    async def _twin(self, ticket: Ticket) -> Flight | None:
        mine = await self._hasher.key(ticket)
        if mine is None:
            return None
        for flight in list(self._in_air.get(ticket.fingerprint, ())):
            theirs = await self._hasher.key(flight.ticket)
            if theirs == mine and flight.callers:  # it may have landed meanwhile
                return flight
        return None
