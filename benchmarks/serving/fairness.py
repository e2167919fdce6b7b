"""More than can be answered: an open loop with bursts, and urgent requests among a flood."""

from __future__ import annotations

import random
from itertools import chain
from statistics import median
from typing import NamedTuple

from report import Row

from serving import questions
from serving.connections import Server
from serving.inputs import Source
from serving.load import Flow, Sample, run
from serving.measuring import Bench, Loop, closed, percentile

_UTILISATION = 0.7
_BURST = 3.0  # times the rate
_BURST_FROM_S, _BURST_UNTIL_S, _BURST_EVERY_S = 4.0, 4.5, 10.0
_PATIENCE = 10  # service times
_CONNECTIONS = 200
_LAST_ANSWERS_S = 10.0
_FLOOD = 16
_PAUSE_S = 0.02
_LEAST_S = 4.0
_OK = 200


def attainment(bench: Bench) -> list[Row]:
    """Poisson arrivals at 70 % of capacity, with bursts: who is answered within 10 runs?

    Each round measures anew what is the capacity, and what a run takes: it lasts for one burst, and
    a machine that others use has another speed in the next one.
    """
    rounds = max(1, round(bench.open_loop_s / _BURST_EVERY_S))
    with bench.daemon().running() as daemon, bench.bare() as loops:
        closed(daemon, questions.tensors(bench.tensors), _FLOOD, bench.seconds)
        taken = [_one_round(bench, daemon, loops, number) for number in range(rounds)]
    within = "within 10 service times; requests carry that as their deadline"
    ideal = "a single queue that drops what would be late"
    return [
        Row("serve.attainment", median([one.attained for one in taken]), "share", within),
        Row("serve.attainment.possible", median([one.possible for one in taken]), "share", ideal),
        Row("serve.attainment.no_bursts", median([one.no_bursts for one in taken]), "share"),
        Row("serve.attainment.no_deadline", median([one.no_deadline for one in taken]), "share"),
        Row("serve.capacity_rps", median([one.capacity_rps for one in taken]), "1/s"),
    ]


class _Round(NamedTuple):
    """What one round comes to: shares in time, and requests a second."""

    attained: float
    possible: float
    no_bursts: float
    no_deadline: float
    capacity_rps: float


def _one_round(bench: Bench, daemon: Server, loops: Loop, number: int) -> _Round:
    source = questions.tensors(bench.tensors)
    limit_ms = _PATIENCE * _service_ms(bench, loops)
    capacity = closed(daemon, source, _FLOOD, bench.seconds).rate
    patience = {"Edge-Agent-Timeout-Ms": str(round(limit_ms))}
    patient = questions.tensors(bench.tensors, patience)
    steady, bursts = (
        arrivals(_UTILISATION * capacity, burst, _BURST_EVERY_S, number) for burst in (1.0, _BURST)
    )
    return _Round(
        attained=_share(daemon, patient, bursts, limit_ms),
        possible=possible(bursts, 1 / capacity, limit_ms / 1e3),
        no_bursts=_share(daemon, patient, steady, limit_ms),
        no_deadline=_share(daemon, source, bursts, limit_ms),
        capacity_rps=capacity,
    )


def arrivals(per_second: float, burst: float, seconds: float, seed: int) -> list[float]:
    """Returns when requests are due: Poisson, and in each burst so many times the rate."""
    chance = random.Random(seed)
    due = []
    now = chance.expovariate(per_second * burst)
    while now < seconds:
        is_burst = _BURST_FROM_S <= now % _BURST_EVERY_S < _BURST_UNTIL_S
        if is_burst or chance.random() < 1 / burst:
            due.append(now)
        now += chance.expovariate(per_second * burst)
    return due


def possible(due: list[float], service_s: float, limit_s: float) -> float:
    """Returns the share that one server can answer in time, if it knows what it can't."""
    free, answered = 0.0, 0
    for arrival in due:
        done = max(free, arrival) + service_s
        if done <= arrival + limit_s:
            free, answered = done, answered + 1
    return answered / len(due)


def critical(bench: Bench) -> list[Row]:
    """One urgent client, alone and while bulk requests flood the daemon."""
    with bench.daemon().running() as daemon, bench.bare() as loops:
        service_ms = _service_ms(bench, loops)
        urgent, bulk = (
            questions.tensors(bench.tensors, {"Edge-Agent-Priority": name})
            for name in ("critical", "bulk")
        )
        seconds = max(_LEAST_S, 3 * bench.seconds)
        taken = bench.alternating(
            {
                "alone": lambda: _urgent_ms(daemon, urgent, None, seconds),
                "flooded": lambda: _urgent_ms(daemon, urgent, bulk, seconds),
            }
        )
    alone, flooded = (list(chain.from_iterable(taken[name])) for name in ("alone", "flooded"))
    p99s = [percentile(one, 99) for one in (alone, flooded)]
    return [
        Row("serve.critical_p99_ratio", p99s[1] / (p99s[0] + service_ms), "ratio", "bar 1"),
        Row("serve.critical_p99_ms.alone", p99s[0], "ms"),
        Row("serve.critical_p99_ms.flooded", p99s[1], "ms", f"{len(flooded)} requests"),
        Row("serve.critical_p50_ms.alone", median(alone), "ms"),
        Row("serve.critical_p50_ms.flooded", median(flooded), "ms"),
    ]


def _urgent_ms(server: Server, urgent: Source, bulk: Source | None, seconds: float) -> list[float]:
    """Returns what the urgent client waited each time; it pauses for a random while in between."""
    chance = random.Random(2)
    flow = Flow(server.connect, urgent, 1, think_s=lambda: chance.uniform(0, _PAUSE_S))
    flood = [Flow(server.connect, bulk, _FLOOD)] if bulk else []
    run([flow, *flood], seconds)
    return [_whole(sample).ms for sample in flow.samples]


def _whole(sample: Sample) -> Sample:
    if sample.status != _OK:
        raise RuntimeError(f"an urgent request was answered with {sample.status}")
    return sample


def _share(server: Server, source: Source, due: list[float], limit_ms: float) -> float:
    flow = Flow(server.connect, source, _CONNECTIONS, arrivals=due)
    run([flow], due[-1] + _LAST_ANSWERS_S)
    in_time = sum(sample.status == _OK and sample.ms <= limit_ms for sample in flow.samples)
    return in_time / len(due)


def _service_ms(bench: Bench, loops: Loop) -> float:
    """Returns how long one run of the model takes."""
    loops.turn(f"raw {bench.seconds / 2}")
    return loops.turn(f"raw {bench.seconds}").p50_ms
