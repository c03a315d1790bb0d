"""A run that is killed is healed by its watchdog, and one that ends in order is left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.patience import PATIENCE_S

RUN = """
import sys, time
from pathlib import Path
from gantry_chaos.core.actions import Command
from gantry_chaos.plan.journal import Journal
from gantry_chaos.watchdog import Watchdog
folder, mark = Path(sys.argv[1]), sys.argv[2]
(folder / "cut").mkdir()
with Watchdog(folder, ("kubectl",)), Journal(folder / "cut" / "faults.journal", "run") as journal:
    journal.begin("cut", ("shop/a",), (Command(("touch", mark)),))
    print("struck", flush=True)
    if sys.argv[3] == "wait":
        time.sleep(60)
    if sys.argv[3] == "fail":
        raise SystemExit("it failed")
    journal.healed("cut")
"""


def started(folder: Path, how: str) -> subprocess.Popen[str]:
    argv = (sys.executable, "-c", RUN, str(folder), str(folder / "healed"), how)
    run = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "struck\n"
    return run


def ended(run: subprocess.Popen[str]) -> None:
    run.wait(PATIENCE_S)
    assert run.stdout is not None
    run.stdout.close()


def until_healed(folder: Path) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    said = folder / "watchdog.log"
    while "healed after the run had ended" not in said.read_text():
        assert time.monotonic() < deadline_s, said.read_text()
        time.sleep(0.05)
    assert (folder / "healed").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_run_is_healed(tmp_path: Path, number: signal.Signals) -> None:
    run = started(tmp_path, "wait")
    run.send_signal(number)
    ended(run)
    until_healed(tmp_path)


def test_a_run_whose_whole_group_is_killed_is_healed(tmp_path: Path) -> None:
    run = started(tmp_path, "wait")
    os.killpg(run.pid, signal.SIGKILL)
    ended(run)
    until_healed(tmp_path)


def test_a_run_that_fails_before_its_heal_is_healed(tmp_path: Path) -> None:
    ended(started(tmp_path, "fail"))
    until_healed(tmp_path)


def test_after_an_orderly_end_nothing_is_done(tmp_path: Path) -> None:
    run = started(tmp_path, "end")
    ended(run)
    assert run.returncode == 0
    assert (tmp_path / "watchdog.log").read_text() == ""
    assert not (tmp_path / "healed").exists()
