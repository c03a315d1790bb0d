"""When a stopped broker is ended, and what its guard does besides."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from gantry_broker.host import guard
from gantry_broker.host.guard import BLIND_S, Stillness
from support.patience import PATIENCE_S

RUNNING, STOPPED = False, True


@pytest.mark.parametrize(
    ("looks", "ends_at"),
    [
        pytest.param([(n / 10, STOPPED) for n in range(12)], 0.7, id="stopped"),
        pytest.param([(n / 10, RUNNING) for n in range(12)], None, id="running"),
        pytest.param(
            [(n / 10, n != 5) for n in range(12)], None, id="it ran for a moment in between"
        ),
        pytest.param(
            [(0.0, STOPPED), (0.1, STOPPED), (0.2 + BLIND_S, STOPPED), (0.8 + BLIND_S, STOPPED)],
            None,
            id="the guard stood still itself",
        ),
    ],
)
def test_only_a_process_that_was_stopped_at_each_look_is_ended(
    looks: list[tuple[float, bool]], ends_at: float | None
) -> None:
    stillness = Stillness(0.7)
    ended = [at for at, is_stopped in looks if stillness.look(at, is_stopped=is_stopped)]
    assert (ended[0] if ended else None) == ends_at


def guarded(program: str, limit_ms: int = 300) -> subprocess.Popen[str]:
    code = f"from gantry_broker.host import guard; guard.stand({limit_ms}); {program}"
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


PRINTS_ITS_ID = "import os, time; print(os.getpid(), flush=True); "


def test_a_stopped_process_is_ended_and_its_guard_says_so() -> None:
    with guarded(PRINTS_ITS_ID + "time.sleep(600)") as process:
        assert process.stdout is not None
        os.kill(int(process.stdout.readline()), signal.SIGSTOP)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 128 + signal.SIGKILL
    what = "The broker was stopped for 300 ms: it is ended, so that its clients go on."
    assert said == f"gantry: {what}\n"


def test_signals_and_exit_codes_go_through() -> None:
    program = (
        "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        + PRINTS_ITS_ID
        + "time.sleep(600)"
    )
    with guarded(program) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) != process.pid
        process.terminate()
        assert process.wait(PATIENCE_S) == 7


def test_nobody_outlives_its_guard() -> None:
    with guarded(PRINTS_ITS_ID + "time.sleep(600)") as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        deadline_s = time.monotonic() + PATIENCE_S
        while guard._state(child) not in ("", "Z"):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
