"""What a daemon makes of it that a bundle came or went, and the words for that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

from edge_agent.cli import output
from edge_agent.cli.admin_socket import DaemonAbsentError, NotOursError, ask
from edge_agent.cli.apply import told
from edge_agent.errors import UnavailableError

if TYPE_CHECKING:
    from edge_agent.config import AgentConfig
    from edge_agent.serving.desired import Desired

SERVED, UNLOADED, NOT_DESIRED = "served", "unloaded", "not_desired"


class Followed(Struct, frozen=True):
    """What came of a daemon's following the store.

    Attributes:
        desired: The desired state that is kept; None where none is.
        steps: What it took, as the daemon tells.
    """

    desired: Desired | None
    steps: list[dict[str, Any]]


def follow(config: AgentConfig) -> Followed | None:
    """Has this user's daemon serve what it would serve if it started now.

    Returns:
        None where there is no such daemon, or it has another store.

    Raises:
        AgentError: It can't be asked, or the desired state can't be read.
    """
    import msgspec

    from edge_agent.daemon.kept_state import DesiredFile

    path = config.admin_socket
    try:
        state_dir = ask(path, "GET", "/desired")["state_dir"]
    except (DaemonAbsentError, NotOursError):
        return None
    if state_dir != str(config.state_dir.resolve()):
        return None
    # What the daemon says would be nothing too where it couldn't read its file, or hasn't yet.
    desired = DesiredFile(config.state_dir).read()
    if desired is None:
        done = ask(path, "DELETE", "/desired")
    else:
        done = ask(path, "PUT", "/desired", msgspec.to_builtins(desired))
    return Followed(desired, done["steps"])


def have_served(config: AgentConfig, name: str, version: str) -> str | None:
    """Has the daemon, if one runs, serve what was installed, and says whether it does.

    Returns:
        `SERVED` or `NOT_DESIRED`; None where no daemon follows.

    Raises:
        AgentError: It can't serve it; what it served before, it still serves.
    """
    followed = follow(config)
    if followed is None:
        return None
    _require_done(followed, name)
    if followed.desired is not None and not followed.desired.asks_for(name, version):
        output.notice(
            f"the daemon's desired state doesn't name {name} {version}, so that isn't served"
        )
        output.hint("edge-agent apply one that does, or edge-agent apply --clear")
        return NOT_DESIRED
    output.notice(f"the daemon serves {name} {version}")
    return SERVED


def have_unloaded(config: AgentConfig, name: str, versions: list[str]) -> str | None:
    """Has the daemon, if one runs, serve nothing that was removed, and says so.

    Returns:
        `UNLOADED`; None where no daemon follows.

    Raises:
        AgentError: It isn't served, though the desired state asks for it; or see `follow`.
    """
    followed = follow(config)
    if followed is None:
        return None
    _require_done(followed, name)
    output.notice(f"the daemon doesn't serve {name} {', '.join(versions)} any more")
    return UNLOADED


def _require_done(followed: Followed, name: str) -> None:
    """Tells of steps that failed.

    Raises:
        UnavailableError: One of this model has.
    """
    failed = [step for step in followed.steps if step["error"]]
    problems = [f"{told(step)}: {step['error']}" for step in failed if step["model"] == name]
    for step in failed:
        if step["model"] != name:
            output.notice(f"the daemon can't serve what it should: {told(step)}: {step['error']}")
    if problems:
        raise UnavailableError(
            f"the daemon can't serve what it should: {'; '.join(problems)}",
            hint="it tries it again by itself; edge-agent apply changes what it should serve",
        )
