"""A demonstration that is interrupted leaves nothing behind: no process, no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest


def processes_of(directory: Path) -> list[str]:
    """Processes that were given something below `directory`."""
    mark = f"{directory}/gantry-".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile, or is not ours
            told = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
            if mark in told:
                found.append(told.partition(b"\0\0")[0].replace(b"\0", b" ").decode())
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_interrupted_demonstration_cleans_up(number: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "gantry_cli", "demo"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "operator" in line:
                break
        assert processes_of(tmp_path)
        demo.send_signal(number)
        demo.stdout.read()
    assert demo.returncode == 130
    assert processes_of(tmp_path) == []
    assert list(tmp_path.iterdir()) == []
