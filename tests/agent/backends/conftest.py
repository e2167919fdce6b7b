"""What the tests of every engine share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from edge_agent import keyrings
from edge_agent.backends.registry import BACKENDS
from edge_agent.bundles import open_bundle
from edge_agent.images import ImageLimits
from edge_agent.pipeline import Pipeline
from edge_agent.types import Request
from edge_signing.trust import Purpose
from tests.agent.conftest import NOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from edge_agent.backends.base import Backend, Session
    from edge_agent.bundles import Bundle
    from edge_agent.description import EngineFile
    from edge_agent.types import Tensor


class DemoOn:
    """The demo bundle on one engine."""

    def __init__(self, engine: str, bundle: Bundle) -> None:
        part = bundle.description.engine(engine)
        assert part
        self.engine = engine
        self.part: EngineFile = part
        self.backend: Backend = BACKENDS[engine]
        self.description = bundle.description
        self.model = bundle.model_file(part)
        self.pipeline = Pipeline(bundle.description, bundle.labels(), ImageLimits())
        self.coffee = bundle.read("golden/coffee.jpg", 1 << 20)
        self.session = self.load()

    def load(self, threads: int = 1) -> Session:
        return self.backend.load(self.model, self.description, self.part, threads)

    def inputs(self, image: bytes) -> dict[str, Tensor]:
        return self.pipeline.prepare(Request("m", "s", image), self.part.layout)

    def best(self, outputs: Mapping[str, Tensor]) -> tuple[int, float]:
        (top,) = self.pipeline.answer(outputs, 1)
        return top.index, top.score


@pytest.fixture(scope="session", params=list(BACKENDS))
def demo_on(request: pytest.FixtureRequest) -> Iterator[DemoOn]:
    """The demo bundle on each engine in turn, loaded once."""
    with open_bundle(keyrings.DEMO_BUNDLE, keyrings.shipped(), NOW, Purpose.LOAD) as bundle:
        yield DemoOn(request.param, bundle)
