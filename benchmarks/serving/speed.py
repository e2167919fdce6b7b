"""Latency and throughput against bare code and against peers."""

from __future__ import annotations

from collections.abc import Callable

from report import Row

from serving import checks, questions, servers
from serving.connections import Server
from serving.environments import scripts
from serving.inputs import Source, repeating
from serving.measuring import Bench, Loop, Segment, closed, loop, p50_ms, p99_ms, rate
from serving.processes import LOAD_CPU

_CLIENTS = (1, 4, 16)
_MANY = 16


def ceiling(bench: Bench) -> list[Row]:
    """What the load generator reaches against a responder that does nothing."""
    source = questions.tensors(bench.tensors)
    with servers.noop(bench.folder) as nothing:
        results = bench.alternating(
            {
                "one": lambda: closed(nothing, source, 1, bench.seconds),
                "many": lambda: closed(nothing, source, _MANY, bench.seconds),
            }
        )
    return [
        Row("serve.generator_ceiling_rps", rate(results["many"]), "1/s", "600 KB, 16 clients"),
        Row("serve.generator_floor_ms", p50_ms(results["one"]), "ms", "600 KB, 1 client"),
    ]


def bare(bench: Bench) -> list[Row]:
    """Against ONNX Runtime in a loop, with and without Pillow before it."""
    with bench.daemon().running() as daemon, bench.bare() as loops:
        raw, jpeg = questions.tensors(bench.tensors), questions.frames(bench.frames)
        checks.answers_rightly(daemon, raw)
        works: dict[str, Callable[[], Segment]] = {}
        for kind, source in (("raw", raw), ("jpeg", jpeg)):
            works[f"bare_{kind}"] = _bare_turn(bench, loops, kind)
            for clients in _CLIENTS:
                works[f"{kind}.{clients}"] = _turn(bench, daemon, source, clients)
        results = bench.alternating(works)
        again = repeating(raw)
        checks.hits_the_cache(daemon, again())
        hits = bench.alternating({"hit": _turn(bench, daemon, again, 1)})["hit"]
    bare_raw, bare_jpeg = results.pop("bare_raw"), results.pop("bare_jpeg")
    added = p50_ms(results["raw.1"]) - p50_ms(bare_raw)
    return [
        Row("serve.added_p50_ms", added, "ms", "bar 1.0"),
        Row(
            "serve.throughput_vs_bare",
            rate(results["raw.16"]) / rate(bare_raw),
            "ratio",
            "bar 0.85",
        ),
        Row("serve.jpeg_throughput_vs_bare", rate(results["jpeg.16"]) / rate(bare_jpeg), "ratio"),
        Row("serve.cache_hit_p50_ms", p50_ms(hits), "ms"),
        Row("serve.bare_p50_ms.raw", p50_ms(bare_raw), "ms"),
        Row("serve.bare_p50_ms.jpeg", p50_ms(bare_jpeg), "ms"),
        Row("serve.bare_rps.raw", rate(bare_raw), "1/s"),
        Row("serve.bare_rps.jpeg", rate(bare_jpeg), "1/s"),
        *(row for name, segments in results.items() for row in _rows(name, segments)),
    ]


def mlserver(bench: Bench) -> list[Row]:
    """Against MLServer: over gRPC, over REST, and past its protocol."""
    client = scripts("mlserver") / "python"
    with (
        servers.mlserver(bench.folder / "mlserver") as peer,
        loop(
            [client, servers.PEERS / "mlserver_grpc.py", str(peer.grpc_port)],
            bench.folder,
            LOAD_CPU,
        ) as grpc,
        bench.daemon().running() as daemon,
    ):

        def over_grpc() -> Segment:
            taken = grpc.latencies_ms(f"{_MANY} {bench.seconds}")
            return Segment.of(taken, sum(taken) / 1e3 / _MANY)

        ours = _turn(bench, daemon, questions.tensors(bench.tensors), _MANY)
        rest = _turn(bench, peer.server, questions.base64_json(bench.tensors), _MANY)
        octets = questions.octets("/raw", bench.tensors)
        checks.answers_rightly(peer.server, octets)
        handler = _turn(bench, peer.server, octets, _MANY)
        results = bench.alternating(
            {"ours": ours, "grpc": over_grpc, "rest": rest, "handler": handler}
        )
    speeds = {name: rate(segments) for name, segments in results.items()}
    best = max(speeds["grpc"], speeds["rest"])
    return [
        Row("serve.vs_mlserver", speeds["ours"] / best, "ratio", "the faster of gRPC and REST"),
        Row("serve.vs_mlserver.rest", speeds["ours"] / speeds["rest"], "ratio"),
        Row(
            "serve.vs_mlserver.handler",
            speeds["ours"] / speeds["handler"],
            "ratio",
            "octets past its protocol, metrics and batching",
        ),
        *(Row(f"serve.rps.mlserver.{name}", speeds[name], "1/s") for name in list(speeds)[1:]),
    ]


def litserve(bench: Bench) -> list[Row]:
    """Against LitServe."""
    with servers.litserve(bench.folder / "litserve") as peer, bench.daemon().running() as daemon:
        theirs = questions.octets("/predict", bench.tensors)
        checks.answers_rightly(peer, theirs)
        results = bench.alternating(
            {
                "ours": _turn(bench, daemon, questions.tensors(bench.tensors), _MANY),
                "peer": _turn(bench, peer, theirs, _MANY),
            }
        )
    speed = rate(results["peer"])
    return [
        Row("serve.vs_litserve", rate(results["ours"]) / speed, "ratio"),
        Row("serve.rps.litserve", speed, "1/s"),
    ]


def _turn(bench: Bench, server: Server, source: Source, clients: int) -> Callable[[], Segment]:
    return lambda: closed(server, source, clients, bench.seconds)


def _bare_turn(bench: Bench, loops: Loop, kind: str) -> Callable[[], Segment]:
    return lambda: loops.turn(f"{kind} {bench.seconds}")


def _rows(name: str, segments: list[Segment]) -> list[Row]:
    return [
        Row(f"serve.p50_ms.{name}", p50_ms(segments), "ms"),
        Row(f"serve.p99_ms.{name}", p99_ms(segments), "ms"),
        Row(f"serve.rps.{name}", rate(segments), "1/s"),
    ]
