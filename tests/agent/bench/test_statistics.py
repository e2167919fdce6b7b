from edge_agent.bench.statistics import latency


def test_percentiles_are_times_that_were_measured() -> None:
    hundred = [float(number) for number in range(100, 0, -1)]
    found = latency(hundred)
    assert (found.p50, found.p95, found.p99, found.runs) == (50.0, 95.0, 99.0, 100)


def test_one_run_is_every_percentile() -> None:
    found = latency([7.5])
    assert (found.p50, found.p95, found.p99, found.runs) == (7.5, 7.5, 7.5, 1)


def test_few_runs_have_the_slowest_at_the_end() -> None:
    found = latency([1.0, 2.0, 9.0])
    assert (found.p50, found.p95, found.p99) == (2.0, 9.0, 9.0)
