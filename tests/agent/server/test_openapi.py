"""The OpenAPI document tells of every operation, and of no other."""

from __future__ import annotations

import json

import jsonschema
import pytest

from edge_agent.server import openapi, routes
from tests.agent.server.asgi import admin, asked, data
from tests.agent.server.fakes import FakeService

DATA = json.loads(openapi.document(routes.DATA))
ADMIN = json.loads(openapi.document(routes.ADMIN, {routes.RELOAD: openapi.reload()}))


def test_it_is_served_to_each_as_it_is_for_them() -> None:
    assert asked(data(FakeService()), "GET", "/openapi.json").json() == DATA
    assert asked(admin(FakeService()), "GET", "/openapi.json").json() == ADMIN


def test_the_owner_has_more() -> None:
    more = set(ADMIN["paths"]) - set(DATA["paths"])
    prefix = "/v2/repository/models/{name}"
    assert more == {f"{prefix}/load", f"{prefix}/unload", routes.RELOAD}


@pytest.mark.parametrize("table", [routes.DATA, routes.ADMIN])
def test_every_operation_stands_in_it_once(table: tuple[routes.Route, ...]) -> None:
    document = json.loads(openapi.document(table))
    ids = [
        operation["operationId"]
        for path in document["paths"].values()
        for operation in path.values()
    ]
    assert len(set(ids)) == len(ids)
    for route in table:
        if not route.is_hidden:
            assert route.method.lower() in document["paths"][route.path]


def test_its_schemas_are_schemas_and_its_references_lead_somewhere() -> None:
    schemas = ADMIN["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    text = json.dumps(ADMIN)
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(schemas)
    assert set(schemas) - named == set()


def test_replies_are_as_it_says() -> None:
    app = admin(FakeService())
    for path in ("/v2", "/v2/models/demo/net", "/v2/models/stats", "/v1/models/demo/net", "/"):
        template = path.replace("demo/net", "{name}")
        reply = DATA["paths"][template]["get"]["responses"]["200"]
        schema = reply["content"]["application/json"]["schema"]
        whole = {**schema, "components": ADMIN["components"]}
        jsonschema.validate(asked(app, "GET", path).json(), whole)
