"""How a process ends."""

import asyncio
import errno
import gc
import importlib
import io
import os
import signal
import subprocess
import sys
from contextlib import suppress
from unittest.mock import Mock

import pytest
from gantry_protocol.errors import ConfigError, CorruptionError, GantryError, PortInUseError
from gantry_protocol.process import runtime
from gantry_protocol.process.runtime import Main, run, take_signals
from gantry_protocol.process.tasks import keep
from support.patience import PATIENCE_S


def _run(main: Main) -> tuple[int, str]:
    stderr = io.StringIO()
    return run(main, stderr=stderr), stderr.getvalue()


def _raising(error: BaseException) -> Main:
    async def main(stop: asyncio.Event) -> None:
        raise error

    return main


def test_a_normal_end_is_quiet() -> None:
    async def main(stop: asyncio.Event) -> None:
        assert not stop.is_set()

    assert _run(main) == (0, "")


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("The setting name is missing."), 2, "The setting name is missing.\n"),
        (PortInUseError("Port 1 is in use."), 75, "Port 1 is in use.\n"),
        (
            CorruptionError("/d/wal-1", 17, "the CRC differs"),
            2,
            "/d/wal-1 is damaged at byte 17: the CRC differs.\n",
        ),
        (ExceptionGroup("g", [ExceptionGroup("h", [GantryError("Inner.")])]), 2, "Inner.\n"),
    ],
)
def test_an_operating_error_is_one_sentence(error: Exception, code: int, text: str) -> None:
    assert _run(_raising(error)) == (code, f"gantry: {text}")


@pytest.mark.parametrize(
    "error",
    [ValueError("oops"), AssertionError(), ExceptionGroup("g", [GantryError("a"), KeyError("b")])],
)
def test_anything_unforeseen_ends_with_its_traceback(error: Exception) -> None:
    code, text = _run(_raising(error))
    assert code == 70
    assert "Traceback" in text or "Exception Group" in text
    assert type(error).__name__ in text


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("in a task"), 70),
        (OSError(28, "No space left on device"), 70),
        (GantryError("In a task."), 2),
    ],
)
def test_a_task_that_dies_ends_the_process(error: Exception, code: int) -> None:
    async def die() -> None:
        raise error

    async def main(stop: asyncio.Event) -> None:
        task = asyncio.create_task(die())
        await asyncio.sleep(0)
        del task
        gc.collect()
        await asyncio.wait_for(stop.wait(), 10)

    got, text = _run(main)
    assert got == code
    assert str(error) in text


def test_a_task_that_somebody_keeps_ends_the_process_when_it_dies() -> None:
    """Its owner refers to it until it stops it, so the event loop alone would never tell."""

    async def die() -> None:
        raise ValueError("in a task that is kept")

    async def main(stop: asyncio.Event) -> None:
        kept = keep(die(), "kept")
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), PATIENCE_S)
        assert kept.cancelled(), "it died, and the process goes on"

    code, text = _run(main)
    assert code == 70
    assert "in a task that is kept" in text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_what_a_volume_refuses_is_one_sentence(number: int) -> None:
    code, text = _run(_raising(OSError(number, os.strerror(number), "/data/store")))
    assert code == 70
    assert text.count("\n") == 1
    assert "/data/store" in text
    assert os.strerror(number) in text
    assert "start again" in text


def test_a_file_that_is_missing_is_no_fault_of_a_volume() -> None:
    code, text = _run(_raising(FileNotFoundError(errno.ENOENT, "No such file", "/x")))
    assert code == 70
    assert "Traceback" in text


def test_a_callback_that_fails_ends_the_process() -> None:
    async def main(stop: asyncio.Event) -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.wait_for(stop.wait(), 10)

    code, text = _run(main)
    assert code == 70
    assert "ZeroDivisionError" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_sets_the_stop_event(number: signal.Signals) -> None:
    cleaned = []

    async def main(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 10)
        cleaned.append(True)

    assert _run(main) == (0, "")
    assert cleaned


def test_a_second_signal_cancels() -> None:
    async def main(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 10)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()

    assert _run(main) == (0, "")


def test_signals_that_a_library_took_are_taken_back() -> None:
    async def main(stop: asyncio.Event) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: None)
        take_signals()
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(stop.wait(), 10)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(asyncio.Event().wait(), 10)

    assert _run(main) == (0, "")


def test_trouble_of_the_event_loop_is_survived() -> None:
    async def main(stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": "accept", "exception": OSError(24, "Too many")})
        await asyncio.sleep(0)

    assert _run(main) == (0, "")


def test_garbage_is_collected_seldom_and_what_is_there_is_never_walked_again() -> None:
    says = (
        "import gc; from gantry_protocol.process import runtime; runtime.collect_seldom(); "
        "print(gc.get_threshold() == runtime.COLLECT_AFTER, gc.get_freeze_count() > 1000)"
    )
    done = subprocess.run(
        (sys.executable, "-c", says), check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "True True\n"


@pytest.mark.parametrize(
    ("module", "server"),
    [
        ("gantry_broker.host.server", "BrokerServer"),
        ("gantry_broker.front.server", "FrontServer"),
        ("gantry_broker.door.server", "DoorServer"),
        ("gantry_proxy.server", "ProxyServer"),
    ],
)
async def test_processes_on_the_way_of_messages_collect_seldom(
    module: str, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.import_module(module)
    told: list[str] = []

    class Server:
        def __init__(self, *_: object) -> None: ...

        async def run(self, _: asyncio.Event) -> None:
            told.append("run")

    monkeypatch.setattr(found, server, Server)
    monkeypatch.setattr(found, "demand_key", lambda *_, **__: None, raising=False)
    monkeypatch.setattr(runtime, "collect_seldom", lambda: told.append("collect seldom"))
    await found.serve(Mock(), asyncio.Event())
    assert told == ["collect seldom", "run"]
