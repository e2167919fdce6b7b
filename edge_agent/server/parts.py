"""What operations work with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from edge_agent.server import failures
from edge_agent.server.refusals import Refused, uncounted

if TYPE_CHECKING:
    from edge_agent.server.bodies import Bodies
    from edge_agent.server.paths import Target
    from edge_agent.serving.service import ModelStatus, Service


class Parts(Struct, frozen=True):
    """What operations work with.

    Attributes:
        service: The models.
        bodies: Reads bodies.
        metrics: Renders them in Prometheus's text format.
        openapi: The OpenAPI document, as JSON.
        is_admin: Whether they are for the owner of this machine.
        refused: Told of requests that end before a model is asked.
    """

    service: Service
    bodies: Bodies
    metrics: Callable[[], bytes]
    openapi: bytes
    is_admin: bool
    refused: Refused = uncounted

    def status(self, target: Target) -> ModelStatus:
        """Returns the model that a path means.

        Raises:
            ModelNotFoundError: There is none.
        """
        return self.service.model(target.name, target.version)

    def reason(self, status: ModelStatus) -> str:
        """Returns why a model isn't ready, as far as those who ask here may know."""
        return failures.reason(status.reason, self.is_admin)
