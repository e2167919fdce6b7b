"""Which operation a path means: names have slashes, bare or encoded."""

from __future__ import annotations

import pytest

from edge_agent.errors import BadInputError
from edge_agent.server.paths import target
from tests.agent.server.asgi import admin, asked
from tests.agent.server.fakes import FakeService

MODEL = "/v2/models/{name}"

CASES = [
    ("/", "/", "", None),
    ("/v2", "/v2", "", None),
    ("/v2/", "/v2", "", None),
    ("/v2/health/live", "/v2/health/live", "", None),
    ("/v2/models/a", MODEL, "a", None),
    ("/v2/models/a/b", MODEL, "a/b", None),
    ("/v2/models/a%2Fb", MODEL, "a/b", None),
    ("/v2/models/a%2fb/infer", f"{MODEL}/infer", "a/b", None),
    ("/v2/models/a/b/infer", f"{MODEL}/infer", "a/b", None),
    ("/v2/models/a/b/c/ready", f"{MODEL}/ready", "a/b/c", None),
    ("/v2/models/a/b/versions/1.0.0", MODEL, "a/b", "1.0.0"),
    ("/v2/models/a/b/versions/1.0.0%2Bx/infer", f"{MODEL}/infer", "a/b", "1.0.0+x"),
    ("/v2/models/a/b/versions/1.0.0+x/stats", f"{MODEL}/stats", "a/b", "1.0.0+x"),
    ("/v2/models/a@1.0.0/infer", f"{MODEL}/infer", "a", "1.0.0"),
    ("/v2/models/a%401.0.0", MODEL, "a", "1.0.0"),
    # The last word is the operation, and "versions" begins a version, unless a slash is encoded.
    ("/v2/models/a/ready", f"{MODEL}/ready", "a", None),
    ("/v2/models/a%2Fready", MODEL, "a/ready", None),
    ("/v2/models/a%2Fready/ready", f"{MODEL}/ready", "a/ready", None),
    ("/v2/models/a/infer/infer", f"{MODEL}/infer", "a/infer", None),
    ("/v2/models/infer", MODEL, "infer", None),
    ("/v2/models/versions/1", MODEL, "versions/1", None),
    ("/v2/models/a%2Fversions%2F1", MODEL, "a/versions/1", None),
    ("/v2/models/a/versions/1/versions/2", MODEL, "a/versions/1", "2"),
    ("/v2/models/stats", "/v2/models/stats", "", None),
    ("/v2/models/%73tats", MODEL, "stats", None),
    ("/v2/models/stats/stats", f"{MODEL}/stats", "stats", None),
    ("/v2/models/", "/v2/models", "", None),
    ("/v2/repository/index", "/v2/repository/index", "", None),
    ("/v2/repository/models/a/b/load", "/v2/repository/models/{name}/load", "a/b", None),
    ("/v2/repository/models/a@2.0.0/unload", "/v2/repository/models/{name}/unload", "a", "2.0.0"),
    ("/v2/repository/models/a", "/v2/repository/models/a", "", None),
    ("/infer/a/b", "/infer/{name}", "a/b", None),
    ("/infer/a/infer", "/infer/{name}", "a/infer", None),
    ("/infer/a/versions/1.0.0", "/infer/{name}", "a", "1.0.0"),
    ("/v1/models", "/v1/models", "", None),
    ("/v1/models/a/b", "/v1/models/{name}", "a/b", None),
    ("/v1/models/a/b:predict", "/v1/models/{name}:predict", "a/b", None),
    ("/v1/models/a%2Fb%3Apredict", "/v1/models/{name}:predict", "a/b", None),
    ("/v1/models/a/versions/1.0.0:predict", "/v1/models/{name}:predict", "a", "1.0.0"),
    ("/v1/models/a:explain", "/v1/models/{name}:explain", "a", None),
    ("/v2/repository/models//load", "/v2/repository/models//load", "", None),
    ("/v2/repository/models/@1.0.0/load", "/v2/repository/models/@1.0.0/load", "", None),
    ("/v2/models//infer", "/v2/models//infer", "", None),
    ("/v1/models/:predict", "/v1/models/:predict", "", None),
    ("/v1/models/a:odd", "/v1/models/{name}", "a:odd", None),
]


@pytest.mark.parametrize(("path", "template", "name", "version"), CASES)
def test_a_path_means_one_thing(path: str, template: str, name: str, version: str | None) -> None:
    assert target(path.encode()) == (template, name, version)


@pytest.mark.parametrize("name", ["", "@1.0.0"])
def test_a_model_without_a_name_is_nowhere(name: str) -> None:
    service = FakeService()
    for path in (f"/v2/repository/models/{name}/load", f"/v2/models/{name}/infer"):
        assert asked(admin(service), "POST", path, b"{}").status == 404
    assert not service.changes


def test_a_path_that_is_no_text_is_refused() -> None:
    with pytest.raises(BadInputError):
        target(b"/v2/models/%ff/infer")
