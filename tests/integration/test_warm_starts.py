"""A program that begins warm is the one that an interpreter starts: what it finds, how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import start_facts, warm_starts

PROBE = [sys.executable, str(start_facts.__file__)]
HEIR = [sys.executable, "-I", "-S", warm_starts.LAUNCHER, str(os.getpid())]

LOCALE = {name: text for name, text in os.environ.items() if name.startswith(("LANG", "LC_"))}


@pytest.fixture(autouse=True)
def warm() -> None:
    """The programs of these tests begin warm, or it says why not."""
    if os.environ.get(warm_starts.COLD):
        pytest.skip(f"{warm_starts.COLD} is set")


def found(argv: list[str], **options: Any) -> tuple[Any, str, str, int]:
    """The facts, what else it said, its last line of errors, its exit code."""
    options.setdefault("env", dict(os.environ))  # without what the C library has put beside it
    done = subprocess.run(
        [*argv], input="given", stdout=-1, stderr=-1, text=True, check=False, **options
    )
    first, _, more = done.stdout.partition("\n")
    return sorted(json.loads(first).items()), more, done.stderr.splitlines()[-1:], done.returncode


@pytest.mark.parametrize("how", ["0", "3", "raise"])
@pytest.mark.parametrize("start", [PROBE, [*HEIR, *PROBE]], ids=["at once", "by the kubelet"])
def test_a_program_finds_the_same_and_ends_alike(start: list[str], how: str) -> None:
    with warm_starts.cold():
        expected = found([*start, how, "one", "two words"])
    assert found([*start, how, "one", "two words"]) == expected
    assert ("parent", os.getpid()) in expected[0]


@pytest.mark.parametrize(
    "options",
    [
        {"cwd": "/"},
        {"env": {**LOCALE, "PATH": "/bin", "ONE": "text with ünicode"}},
        {"env": {**LOCALE, "PYTHONUNBUFFERED": "1"}},
        {"start_new_session": True},
    ],
    ids=["directory", "variables", "buffers", "session"],
)
def test_what_is_asked_of_a_start_is_done(options: dict[str, Any]) -> None:
    with warm_starts.cold():
        expected = found([*PROBE, "0"], **options)
    assert found([*PROBE, "0"], **options) == expected


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_it_as_it_would(number: signal.Signals) -> None:
    with subprocess.Popen([*PROBE, "wait"], stdin=-3, stdout=-1, stderr=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait() == -number


def test_it_stands_still_and_goes_on() -> None:
    with subprocess.Popen([*PROBE, "wait"], stdin=-3, stdout=-1) as process:
        process.send_signal(signal.SIGSTOP)
        assert os.waitid(os.P_PID, process.pid, os.WSTOPPED) is not None
        process.send_signal(signal.SIGCONT)
        process.kill()


async def test_asyncio_hears_of_its_end() -> None:
    process = await asyncio.create_subprocess_exec(
        *PROBE, "5", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    assert b'"parent": %d' % os.getpid() in said
    assert process.returncode == 5


def test_a_directory_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        subprocess.run([*PROBE, "0"], cwd=tmp_path / "missing", check=False)
