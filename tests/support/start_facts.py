"""A program that tells what it finds at its start: ``python start_facts.py HOW …``.

Then it ends: HOW is a number to exit with, ``raise``, or ``wait`` for a signal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path


def facts() -> dict[str, object]:
    """What a program can see of how it was started."""
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "path": sys.path[:1],
        "name": __name__,
        "env": dict(sorted(os.environ.items())),
        "directory": str(Path.cwd()),
        "parent": os.getppid(),
        "is_session": os.getsid(0) == os.getpid(),
        "is_group": os.getpgid(0) == os.getpid(),
        "command": Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").decode(),
        "descriptors": sorted(int(path.name) for path in Path("/proc/self/fd").iterdir())[:3],
        "stdin": sys.stdin.read(),
        "lines": [sys.stdout.line_buffering, sys.stderr.line_buffering],
        "through": [sys.stdout.write_through, sys.stderr.write_through],
        "encodings": [one.encoding.lower() for one in (sys.stdin, sys.stdout, sys.stderr)],
        "errors": [sys.stdout.errors, sys.stderr.errors],
        "handlers": {
            one.name: str(signal.getsignal(one)).partition(" at ")[0]
            for one in sorted(signal.valid_signals())
            if isinstance(one, signal.Signals) and one not in {signal.SIGKILL, signal.SIGSTOP}
        },
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "threads": len(list(Path("/proc/self/task").iterdir())),
    }


if __name__ == "__main__":
    print(json.dumps(facts()), flush=True)
    print("and more")  # not flushed by us
    how = sys.argv[1]
    if how == "raise":
        raise RuntimeError("on purpose")
    if how == "wait":
        time.sleep(60)
    sys.exit(int(how))
