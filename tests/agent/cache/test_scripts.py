"""The scripts' statements, on a database in memory."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

from edge_agent.cache import connection, scripts

ROW = scripts.Row(7, 8, "sha256:0", "onnx", 100, b"answer")


def test_uses_are_counted_where_they_belong() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        connection.run(database, scripts.create())
        other = ROW._replace(id=9)
        connection.run(database, scripts.store([ROW, other], [scripts.Use(7, 130, 2)], 1 << 20))
        found = database.execute("SELECT * FROM entries ORDER BY id").fetchall()
    assert found == [
        (7, 8, "sha256:0", "onnx", 100, 130, 2, 6),
        (9, 8, "sha256:0", "onnx", 100, 100, 0, 6),
    ]


def test_placeholders_have_no_numbers() -> None:
    statements = [one for one in vars(scripts).values() if isinstance(one, str)]
    assert any("?" in one for one in statements)
    assert not [one for one in statements if re.search(r"\?\d", one)]
