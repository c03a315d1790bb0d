"""Becomes the pod's process, tied to its kubelet's life: ``launch.py PARENT_PID PROGRAM ARG...``.

Run as a plain file by an isolated interpreter (``-I -S``), so it imports nothing but the standard
library. The kernel kills the process when the parent dies, however it dies: ``prctl`` survives the
exec, and the parent's pid is checked afterwards in case it died before.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Tie to the parent, then exec."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"prctl(PR_SET_PDEATHSIG) failed with errno {ctypes.get_errno()}")
    if os.getppid() != parent:
        sys.exit("the kubelet died before its pod began")
    try:
        os.execvp(program[0], program)  # noqa: S606 - a shell is exactly what is not wanted
    except OSError as error:
        sys.exit(f"exec of {program[0]!r} failed: {error.strerror}")


if __name__ == "__main__":
    main()
