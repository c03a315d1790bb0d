"""A second process that ends a broker which somebody has stopped, so that clients look elsewhere.

A process that stands still keeps its connections: its kernel acknowledges what clients send, and
each of them waits for its own time-out, again and again. Nobody but its own machine can end it. So
the process that is started becomes the guard, and the broker is its child: the guard passes signals
on, ends as the broker ends, and kills it once the kernel has said at each look for so long that it
is stopped (state T).

What it refuses: to judge by anything else. A broker that is slow, waits for a disk or gets no
processor is not stopped. A guard that has stood still itself, as when a whole pod is frozen, begins
to count anew.

The guard is this file, run by itself with nothing but the standard library: a few megabytes.
"""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

POLL_S = 0.1
BLIND_S = 0.5  # a longer time between two looks: the guard has stood still, too
_STOPPED = "T"
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
_PASSED_ON = (signal.SIGTERM, signal.SIGINT)
_SENTENCE = "gantry: The broker was stopped for {} ms: it is ended, so that its clients go on.\n"
_HEARD = frozenset({*_PASSED_ON, signal.SIGCHLD})


class Stillness:
    """Since when a process has been seen stopped, look by look; times are seconds."""

    def __init__(self, limit_s: float) -> None:
        """Nothing was seen."""
        self._limit_s = limit_s
        self._since_s: float | None = None
        self._looked_s = 0.0

    def look(self, now_s: float, *, is_stopped: bool) -> bool:
        """Whether it has been stopped at every look for as long as the limit."""
        is_blind = now_s - self._looked_s > BLIND_S
        self._looked_s = now_s
        if not is_stopped:
            self._since_s = None
        elif self._since_s is None or is_blind:
            self._since_s = now_s
        return self._since_s is not None and now_s - self._since_s >= self._limit_s


def stand(limit_ms: int) -> None:
    """Go on in a child, with this process as its guard; nothing happens for 0.

    Before any thread or event loop exists. It returns in the child only.
    """
    if not limit_ms:
        return
    guard = os.getpid()
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, _HEARD
    )  # what comes now is heard by the guard
    child = os.fork()
    if child:
        arguments = [sys.executable, "-I", "-S", __file__, str(child), str(limit_ms)]
        os.execv(sys.executable, arguments)  # noqa: S606 - there is nothing for a shell to do
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != guard:  # it was gone before this could be asked for
        os._exit(1)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def watch(child: int, limit_ms: int) -> int:
    """Pass signals on until the child has ended; returns the exit code that says how."""
    stillness = Stillness(limit_ms / 1000)
    while True:
        found = signal.sigtimedwait(_HEARD, POLL_S)
        if found is not None and found.si_signo in _PASSED_ON:
            os.kill(child, found.si_signo)
        ended, status = os.waitpid(-1, os.WNOHANG)  # as the first of a container, of everybody's
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code
        if stillness.look(time.monotonic(), is_stopped=_state(child) == _STOPPED):
            sys.stderr.write(_SENTENCE.format(limit_ms))
            sys.stderr.flush()
            os.kill(child, signal.SIGKILL)


def _state(pid: int) -> str:
    """What the kernel says of a process; empty once it is gone."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return said.rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


if __name__ == "__main__":
    sys.exit(watch(int(sys.argv[1]), int(sys.argv[2])))
