"""What the daemon goes through, and the bounds that it must keep."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from time import monotonic, sleep
from typing import NamedTuple

from report import Row

from soaking.bundles import NEW, OLD
from soaking.clients import Clients
from soaking.daemon import Daemon

CLIENTS = 4
_VISIBLE_MS = 100.0
_GROWTH_PERCENT = 5.0
_BACK_S = 3.0
_GIVE_UP_S = 60.0
_SAMPLES = 200


class Outcome(NamedTuple):
    """What a part found.

    Attributes:
        rows: Its figures.
        breaches: Bounds that weren't kept.
    """

    rows: list[Row]
    breaches: list[str]


def swaps(daemon: Daemon, count: int = 100) -> Outcome:
    """Swaps two versions under load: nothing fails, and the new one is visible at once."""
    clients = Clients(daemon.data_socket)
    lags_ms, took_ms = [], []
    with clients.asking(CLIENTS):
        for turn in range(count):
            wanted, begun = (NEW, OLD)[turn % 2], monotonic()
            daemon.load(wanted)
            loaded = monotonic()
            took_ms.append((loaded - begun) * 1e3)
            clients.recent.clear()
            clients.wait_for_answer(loaded, _GIVE_UP_S, 2 * CLIENTS)
            late = [one.begun for one in list(clients.recent) if one.version != wanted]
            lags_ms.append(max([0.0, *(at - loaded for at in late)]) * 1e3)
    rows = [
        Row("soak.swap.count", count, ""),
        Row("soak.swap.answered", clients.answered, ""),
        Row("soak.swap.failed", len(clients.failures), "", "0 allowed"),
        Row("soak.swap.inconsistent", len(clients.wrong), "", "0 allowed"),
        Row("soak.swap.load_ms", median(took_ms), "ms", "median of a load"),
        Row("soak.swap.visible_ms", max(lags_ms), "ms", f"{_VISIBLE_MS:g} allowed"),
    ]
    breaches = _faults(clients)
    if max(lags_ms) > _VISIBLE_MS:
        breaches.append(f"a swap was visible only {max(lags_ms):.0f} ms after its load")
    return Outcome(rows, breaches)


def memory(daemon: Daemon, swap_count: int, request_count: int) -> Outcome:
    """Swaps and asks for long: memory stays what it was."""
    clients = Clients(daemon.data_socket)
    weights: list[tuple[float, float]] = []
    swapped = 0
    with clients.asking(CLIENTS):
        while clients.answered < request_count or swapped < swap_count:
            share = min(clients.answered / request_count, 1.0)
            if swapped < share * swap_count or clients.answered >= request_count:
                daemon.load((NEW, OLD)[swapped % 2])
                swapped += 1
            else:
                sleep(0.005)
            clients.recent.clear()
            done = min(share, swapped / max(swap_count, 1))
            if len(weights) <= done * _SAMPLES:
                weights.append(daemon.rss_mib())
    rows = [
        Row("soak.memory.swaps", swapped, ""),
        Row("soak.memory.requests", clients.answered, ""),
        Row("soak.memory.failed", len(clients.failures), "", "0 allowed"),
    ]
    breaches = _faults(clients)
    for name, series in zip(("daemon", "workers"), zip(*weights, strict=True), strict=True):
        first, last = _tenths(series)
        growth = (last / first - 1) * 100
        note = f"{first:.1f} -> {last:.1f} MiB; {_GROWTH_PERCENT:g} allowed"
        rows.append(Row(f"soak.memory.{name}_growth", growth, "%", note))
        if growth > _GROWTH_PERCENT:
            breaches.append(f"the memory of {name} grew by {growth:.1f} %: {note}")
    return Outcome(rows, breaches)


def kills(daemon: Daemon, count: int, seed: int) -> Outcome:
    """Kills daemon or worker again and again: it serves soon, and never a wrong answer."""
    dice = random.Random(seed)
    clients = Clients(daemon.data_socket)
    back_s: dict[str, list[float]] = {"daemon": [], "worker": []}
    breaches: list[str] = []
    daemon.load(OLD)
    with clients.asking(CLIENTS):
        for number in range(count):
            sleep(dice.uniform(0.0, 0.5))
            workers = daemon.workers()
            what = "worker" if workers and dice.random() < 0.5 else "daemon"
            killed = monotonic()
            daemon.kill(dice.choice(workers) if what == "worker" else None)
            took_s = clients.wait_for_answer(monotonic(), _GIVE_UP_S)
            if took_s is None:
                breaches.append(f"after kill {number} ({what}) it never served again")
                break
            back_s[what].append(monotonic() - killed)
            if any(one.version != OLD for one in list(clients.recent)):
                breaches.append(f"after kill {number} ({what}) another version answered")
            clients.recent.clear()
    code, is_whole = daemon.stop(), daemon.database_is_whole()
    rows = [
        Row(f"soak.kill.{what}_back_s", max(taken), "s", _note(taken))
        for what, taken in back_s.items()
        if taken
    ]
    rows += [
        Row("soak.kill.answered", clients.answered, ""),
        Row("soak.kill.wrong", len(clients.wrong), "", "0 allowed"),
        Row("soak.kill.database_whole", is_whole, ""),
    ]
    breaches += clients.wrong
    breaches += [
        f"a {what} took {_note(s)}" for what, s in back_s.items() if s and max(s) > _BACK_S
    ]
    breaches += [] if is_whole else ["the database is damaged"]
    breaches += [] if code == 0 else [f"the daemon ended with {code}"]
    return Outcome(rows, breaches)


def _faults(clients: Clients) -> list[str]:
    count = len(clients.failures) + len(clients.wrong)
    return [f"{count} requests went wrong: {clients.told()}"] if count else []


def _tenths(series: Sequence[float]) -> tuple[float, float]:
    tenth = max(1, len(series) // 10)
    return median(series[:tenth]), median(series[-tenth:])


def _note(taken: Sequence[float]) -> str:
    most = f"most {max(taken):.2f} s, {_BACK_S:g} allowed"
    return f"{len(taken)} kills, median {median(taken):.2f}, {most}"
