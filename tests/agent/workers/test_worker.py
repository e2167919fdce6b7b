"""One worker: what it answers, how it ends, and what it can't make the daemon believe."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from edge_agent.calls import Answer, InputTensor, Query
from edge_agent.errors import (
    AgentError,
    BadInputError,
    EngineFailedError,
    EngineUnavailableError,
    GoldenMismatchError,
    ImageError,
    ModelFileError,
    ModelNotReadyError,
    TensorError,
    WorkerFailedError,
)
from edge_agent.workers import worker
from edge_agent.workers.settings import WorkerSettings
from edge_agent.workers.work import ModelFiles
from edge_agent.workers.worker import Worker
from tests.agent import models

from .daemon_side import (
    LOOPS,
    SETTINGS,
    Loop,
    children,
    close,
    image,
    model_files,
    numbers,
    open_descriptors,
    row,
    run,
    saying,
    scripted,
)


@asynccontextmanager
async def running(settings: WorkerSettings, *loaded: ModelFiles) -> AsyncIterator[Worker]:
    """A worker; nothing of it may be left behind."""
    before = open_descriptors()
    worker = await Worker.start(settings)
    try:
        for one in loaded:
            await worker.load(one, 20.0)
        yield worker
    finally:
        for one in loaded:
            close(one)
        await worker.stop(5.0)
    assert children() == ""
    assert len(open_descriptors()) == len(before) - sum(len(one.files) for one in loaded)


@pytest.mark.parametrize("loop", LOOPS)
def test_real_models_are_loaded_run_proved_and_freed(loop: Loop) -> None:
    async def main() -> None:
        rows, colour = model_files(models.ROWS), model_files(models.COLOUR)
        async with running(SETTINGS, rows, colour) as worker:
            assert worker.ready is not None
            assert worker.ready.engine_version.startswith("onnxruntime")
            assert worker.held_bytes() > worker.idle_bytes // 2 > 1 << 23
            two = await worker.run("acme/rows", (row(1, 2), row(3, 4)), 20.0)
            assert [numbers(one) for one in two] == [[2, 4], [6, 8]]
            (red,) = await worker.run("acme/colour", (image((255, 0, 0)),), 20.0)
            assert isinstance(red, Answer)
            assert [one.label for one in red.labels[0]] == ["red"]
            assert set(red.timings_ms) == {"prepare", "infer", "answer"}
            bad = Query("labels", images=(b"no image",))
            mixed = await worker.run("acme/colour", (bad, image((0, 255, 0))), 20.0)
            assert isinstance(mixed[0], ImageError)
            assert isinstance(mixed[1], Answer)
            await worker.probe("acme/colour", 20.0)
            await worker.unload("acme/rows", 20.0)
            with pytest.raises(ModelNotReadyError):
                await worker.run("acme/rows", (row(1, 2),), 20.0)
            with pytest.raises(ModelNotReadyError):
                await worker.unload("acme/rows", 20.0)

    run(main(), loop)


def test_a_model_that_can_not_be_loaded_harms_nobody() -> None:
    async def main() -> None:
        rows = model_files(models.ROWS)
        async with running(SETTINGS, rows) as worker:
            broken = model_files(models.PAIR, model_onnx=b"garbage")
            with pytest.raises(ModelFileError):
                await worker.load(broken, 20.0)
            close(broken)
            assert numbers((await worker.run("acme/rows", (row(1, 2),), 20.0))[0]) == [2, 4]

    run(main(), LOOPS[0])


def test_an_engine_that_is_missing_is_an_error_of_its_kind() -> None:
    settings = msgspec.structs.replace(SETTINGS, engine="no-such-engine")

    async def main() -> None:
        with pytest.raises(WorkerFailedError, match="exit code 1: a fault in the worker: KeyError"):
            await Worker.start(settings)

    run(main(), LOOPS[0])
    assert children() == ""


START_ENDINGS = [
    ("sys.exit(3)", WorkerFailedError, "ended with the exit code 3"),
    ("sys.exit('no luck\\n\\x1b[31m')", WorkerFailedError, r"exit code 1: \?\[31m"),
    ("kill(11)", WorkerFailedError, "was ended by the signal SIGSEGV"),
    ("kill(9)", WorkerFailedError, "was ended by the signal SIGKILL"),
    ("kill(40)", WorkerFailedError, "was ended by the signal 40"),
    ("stream.sendall(b'\\xff\\xff\\xff\\xff')", WorkerFailedError, "a message of 4294967295 bytes"),
    ("send_frame(b'\\xc1')", WorkerFailedError, "a message that is none"),
    ("send(Done(1))", WorkerFailedError, "answered before it was ready"),
    ("send(Ready('x' * 5000))", WorkerFailedError, "has a strange engine"),
    ("send(Ready('1')); send(Ready('2'))", WorkerFailedError, "what nobody asked"),
    ("stream.shutdown(2); time.sleep(60)", WorkerFailedError, "closed its connection"),
    ("send(Failed(0, Failure('EngineUnavailableError', 'none')))", EngineUnavailableError, "none"),
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("code", "kind", "message"), START_ENDINGS)
def test_a_start_that_fails_says_how(
    stand_in: WorkerSettings, code: str, kind: type[AgentError], message: str, loop: Loop
) -> None:
    run(asyncio.sleep(0), loop)  # uvloop keeps some descriptors from its first time on
    before = open_descriptors()

    async def main() -> None:
        settings = msgspec.structs.replace(stand_in, engine=f"is_quiet = True; {code}")
        with pytest.raises(kind, match=message):
            worker = await Worker.start(settings)  # which may be before it says too much
            try:
                await worker.run("m", (), 20.0)
            finally:
                await worker.stop(5.0)

    run(main(), loop)
    assert children() == ""
    assert open_descriptors() == before


RUN_ENDINGS = [
    ("kill(11)", "crashed", "was ended by the signal SIGSEGV"),
    ("os._exit(0)", "crashed", "ended with the exit code 0"),
    ("stream.sendall(b'\\x10\\0\\0\\0abc'); os._exit(1)", "crashed", "exit code 1"),
    ("stream.sendall(b'\\x10'); kill(9)", "crashed", "SIGKILL"),
    ("stream.shutdown(1); time.sleep(60)", "untrue", "closed its connection"),
    ("is_quiet = True", "hung", "took longer than 0.3 s for a run"),
    ("send_frame(b'')", "untrue", "a message that is none"),
    ("send_frame(b'\\x81\\xa4type\\xa2\\xff\\xfe')", "untrue", "a message that is none"),
    ("send_frame(b'\\x91' * 100000)", "untrue", "a message that is none"),
    ("send(Done(command.id))", "untrue", "answered a batch with something else"),
    ("send(Ran(command.id + 9, ()))", "untrue", "answered what nobody asked"),
    ("send(Ready('again'))", "untrue", "answered what nobody asked"),
    ("send(reply(command))", "untrue", "answered what nobody asked"),
    ("send(Ran(command.id, ()))", "untrue", "gave 0 answers to 1 queries"),
    ("send(Ran(command.id, (answered(part(b'', span=Span(2**40, 0))),)))", "untrue", "outside"),
]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("code", "trouble", "message"), RUN_ENDINGS)
def test_a_run_that_ends_the_worker_fails_all_that_waits(
    stand_in: WorkerSettings, code: str, trouble: str, message: str, loop: Loop
) -> None:
    timeout_s = 0.3 if trouble == "hung" else 20.0

    async def main() -> None:
        async with running(stand_in, scripted("m")) as worker:
            outcomes = await asyncio.gather(
                worker.run("m", (saying(code),), timeout_s),
                worker.probe("m", 20.0),
                worker.run("m", (saying("", 1),), 20.0),
                return_exceptions=True,
            )
            await asyncio.wait((worker.ended,))
            ended = worker.ended.result()
            # Nobody can tell who was meant by a signal that no fault of a process brings about.
            blamed: frozenset[str] = frozenset() if message == "SIGKILL" else frozenset("m")
            assert (ended.trouble, ended.models) == (trouble, blamed)
            failed = [one for one in outcomes if isinstance(one, WorkerFailedError)]
            assert isinstance(outcomes[2], WorkerFailedError)
            assert all(message in one.message for one in failed)
            with pytest.raises(WorkerFailedError, match=message):
                await worker.probe("m", 20.0)

    run(main(), loop)


def test_a_lack_of_memory_is_hinted_at(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with running(stand_in, scripted("m")) as worker:
            with pytest.raises(WorkerFailedError) as caught:
                await worker.run("m", (saying("kill(9)"),), 20.0)
            assert "memory" in (caught.value.hint or "")

    run(main(), LOOPS[0])


def test_last_words_are_for_logs_alone(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with running(stand_in, scripted("m")) as worker:
            with pytest.raises(WorkerFailedError, match=r"SIGSEGV$"):
                await worker.run("m", (saying("os.write(2, b'secret\\n'); kill(11)"),), 20.0)
            assert worker.ended.result().said == "secret"

    run(main(), LOOPS[0])


FAILURES = [
    ("ImageError", ImageError),
    ("TensorError", TensorError),
    ("GoldenMismatchError", GoldenMismatchError),
    ("EngineFailedError", EngineFailedError),
    ("WorkerFailedError", EngineFailedError),
    ("OverloadedError", EngineFailedError),
    ("AgentError", EngineFailedError),
    ("KeyboardInterrupt", EngineFailedError),
    ("", EngineFailedError),
]


@pytest.mark.parametrize(("name", "kind"), FAILURES)
def test_what_a_worker_tells_of_becomes_an_error_of_ours(
    stand_in: WorkerSettings, name: str, kind: type[AgentError]
) -> None:
    failure = f"Failure({name!r}, 'x' * 10000, 'p', 'h')"

    async def main() -> None:
        async with running(stand_in, scripted("m")) as worker:
            code = f"send(Ran(command.id, (Refused({failure}),))); is_quiet = True"
            (one,) = await worker.run("m", (saying(code),), 20.0)
            code = f"send(Failed(command.id, {failure})); is_quiet = True"
            with pytest.raises(AgentError) as caught:
                await worker.run("m", (saying(code),), 20.0)
            for error in (one, caught.value):
                assert type(error) is kind
                assert (error.message, error.path, error.hint) == ("x" * 4096, "p", "h")

    run(main(), LOOPS[0])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_cancelled_run_goes_on_unheard(stand_in: WorkerSettings, loop: Loop) -> None:
    async def main() -> None:
        async with running(stand_in, scripted("m")) as worker:
            slow = asyncio.create_task(worker.run("m", (saying("time.sleep(0.2)", 1),), 20.0))
            await asyncio.sleep(0)
            slow.cancel()
            ask = [worker.run("m", (saying("", n),), 20.0) for n in (2, 3)]
            outcomes = await asyncio.gather(slow, *ask, return_exceptions=True)
            assert isinstance(outcomes[0], asyncio.CancelledError)
            assert [one[0].outputs[0].data for one in outcomes[1:]] == [b"\2", b"\3"]  # type: ignore[index, union-attr]

    run(main(), loop)


def test_a_cancelled_run_that_hangs_ends_the_worker_all_the_same(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with running(stand_in, scripted("m")) as worker:
            stuck = asyncio.create_task(worker.run("m", (saying("time.sleep(60)"),), 0.2))
            await asyncio.sleep(0)
            stuck.cancel()
            with pytest.raises(WorkerFailedError, match=r"took longer than 0.2 s"):
                await worker.run("m", (saying("", 1),), 20.0)

    run(main(), LOOPS[0])


def test_a_cancelled_load_hands_no_other_files_over(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with running(stand_in, scripted("m")) as worker:
            busy = asyncio.create_task(worker.run("m", (saying("time.sleep(0.2)"),), 20.0))
            await asyncio.sleep(0)
            files = scripted("other", files=253)
            loading = asyncio.create_task(worker.load(files, 20.0))
            await asyncio.sleep(0)
            loading.cancel()
            close(files)
            await busy
            await worker.probe("other", 20.0)

    run(main(), LOOPS[0])


def test_what_is_too_large_is_refused_alone(stand_in: WorkerSettings) -> None:
    settings = msgspec.structs.replace(stand_in, memory_limit_mib=4)

    def bytes_of(mib: int, value: int) -> Query:
        data = bytes([value]) * (mib << 20)
        return Query("outputs", (InputTensor("y", "uint8", (len(data),), data),))

    async def main() -> None:
        async with running(settings, scripted("m")) as worker:
            queries = [bytes_of(2, 1), bytes_of(3, 2), bytes_of(5, 3), bytes_of(1, 4)]
            one, two, refused, four = await worker.run("m", queries, 20.0)
            for outcome, value in ((one, 1), (two, 2), (four, 4)):
                assert isinstance(outcome, Answer)
                assert set(outcome.outputs[0].data) == {value}
            assert isinstance(refused, BadInputError)
            assert "4 MiB that a worker has" in refused.message

    run(main(), LOOPS[0])


def test_names_that_are_too_long_are_refused(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        async with running(stand_in, scripted("m")) as worker:
            names = Query("outputs", (InputTensor("y" * (65 << 20), "uint8", (0,), b""),))
            one, refused = await worker.run("m", (saying("", 1), names), 20.0)
            assert isinstance(one, Answer)
            assert isinstance(refused, BadInputError)
            assert "longer than a worker takes" in refused.message
            await worker.probe("m", 20.0)

    run(main(), LOOPS[0])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_start_that_takes_too_long_is_ended(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch, loop: Loop
) -> None:
    monkeypatch.setattr(worker, "START_S", 0.2)
    settings = msgspec.structs.replace(stand_in, engine="time.sleep(60)")

    async def main() -> None:
        with pytest.raises(WorkerFailedError, match=r"took longer than 0.2 s to start"):
            await Worker.start(settings)
        assert children() == ""

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_commands_that_are_given_at_once_are_all_done(loop: Loop) -> None:
    async def main() -> None:
        rows, colour = model_files(models.ROWS), model_files(models.COLOUR)
        async with running(SETTINGS, rows, colour) as one:
            pair = model_files(models.PAIR)
            answers, *_ = await asyncio.gather(
                one.run("acme/rows", (row(1, 2),) * 8, 20.0),
                one.probe("acme/colour", 20.0),
                one.probe("acme/rows", 20.0),
                one.load(pair, 20.0),  # its files may arrive before the probes are read
                one.probe("acme/pair", 20.0),
            )
            close(pair)
            assert [numbers(each) for each in answers] == [[2, 4]] * 8

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_other_models_are_answered_while_one_is_loaded(loop: Loop) -> None:
    async def main() -> None:
        rows, colour = model_files(models.ROWS), model_files(models.COLOUR)
        async with running(SETTINGS, rows, colour) as one:
            more = [model_files(models.changed(models.PAIR, "name", f"a/{n}-pair")) for n in "xyz"]
            loading = [asyncio.create_task(one.load(files, 20.0)) for files in more]
            count = 0
            while not all(task.done() for task in loading):
                assert numbers((await one.run("acme/rows", (row(count, 1),), 20.0))[0])[1] == 2
                count += 1
            for files in more:
                close(files)
            assert count > 1

    run(main(), loop)


def test_a_worker_gets_nothing_of_the_daemon_s_environment(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/secret")
    monkeypatch.setenv("TOKEN", "secret")
    code = "assert not {'NOTIFY_SOCKET', 'TOKEN'} & set(os.environ); assert os.getcwd() == '/'"

    async def main() -> None:
        async with running(msgspec.structs.replace(stand_in, engine=code)) as worker:
            assert worker.ready is not None

    run(main(), LOOPS[0])


def test_what_can_not_be_started_is_an_error(
    stand_in: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", os.devnull)
    before = open_descriptors()

    async def main() -> None:
        with pytest.raises(WorkerFailedError, match="no worker can be started: Permission denied"):
            await Worker.start(stand_in)

    run(main(), LOOPS[0])
    assert open_descriptors() == before


def test_a_start_that_is_cancelled_leaves_nothing(stand_in: WorkerSettings) -> None:
    async def main() -> None:
        settings = msgspec.structs.replace(stand_in, engine="time.sleep(60)")
        starting = asyncio.create_task(Worker.start(settings))
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert children() == ""

    run(main(), LOOPS[0])
