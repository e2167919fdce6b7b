"""The start and the end of a worker process."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from socket import socket
from typing import Final

import msgspec

from edge_agent.workers.child import faults
from edge_agent.workers.child.confinement import confine
from edge_agent.workers.child.connection import Connection, GarbledError
from edge_agent.workers.child.process_setup import settle, settle_down
from edge_agent.workers.protocol import ChildSettings, Failed, Failure, Ready
from edge_agent.workers.tensor_memory import TensorMemory

# Imported before the first request needs them; the engine comes with its backend.
_NEEDED: Final = ("edge_agent.images", "edge_agent.preprocess", "edge_agent.labels")


def main() -> None:
    """Runs the worker. It ends at once, as its libraries' own endings may wait for each other."""
    engine, stream, memory, settings = sys.argv[1:]
    code = 1
    try:
        asked = msgspec.json.decode(settings, type=ChildSettings)
        _serve(engine, socket(fileno=int(stream)), TensorMemory(int(memory)), asked)
        code = 0
    except (GarbledError, OSError) as error:
        print(f"the connection to the daemon is of no use: {error}", file=sys.stderr)  # noqa: T201
    except ImportError as error:
        print(f"can't be imported: {error}", file=sys.stderr)  # noqa: T201
    except BaseException as error:  # noqa: BLE001 - it ends here
        faults.tell(error)
    finally:
        with suppress(OSError):  # nobody reads the log fast enough
            sys.stderr.flush()
        os._exit(code)


def _serve(engine: str, stream: socket, memory: TensorMemory, settings: ChildSettings) -> None:
    user = settle(settings)
    # Before numpy and engines are imported: their threads would stay unconfined.
    confinement = "; ".join(one for one in (user, confine()) if one) or None
    from edge_agent.backends.registry import SHARING_BACKENDS
    from edge_agent.images import ImageLimits
    from edge_agent.workers.child.commands import Commands

    connection = Connection(stream)
    backend = SHARING_BACKENDS[engine]
    status = backend.status()
    if status.version is None:
        problem = Failure("EngineUnavailableError", status.problem or "", None, status.hint)
        connection.send(Failed(0, problem))
        return
    for module in _NEEDED:
        importlib.import_module(module)
    limits = ImageLimits(settings.max_image_bytes, settings.max_image_pixels)
    commands = Commands(connection, memory, backend, status.version, limits, settings.threads)
    settle_down(settings.memory_limit_mib)
    connection.send(Ready(status.version, confinement))
    commands.serve()
