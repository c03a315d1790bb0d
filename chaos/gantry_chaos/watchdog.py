"""Heals what a run leaves behind when its process is killed.

python -m gantry_chaos.watchdog FOLDER KUBECTL…

Started by the run, in a session of its own, with the reading end of a pipe as standard input whose
other end only the run holds. When that end is closed without a word, the run was killed or
failed, and every journal in the folder is healed.

What it refuses: to touch a journal that another run holds by then; that run has healed it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

from gantry_chaos.errors import JournalInUseError
from gantry_chaos.inject.shell import Shell
from gantry_chaos.run import heal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

LOG = "watchdog.log"
ORDERLY = b"ended\n"
END_S = 10.0
QUIET_S = 1.0  # a command that the run had begun may still be at work
LOCK_S = 5.0  # a dying process gives its lock back a moment after its pipes
RETRY_S = 0.2


class Watchdog:
    """Watches this process while the context is open.

    Args:
        folder: whose journals are healed if this process dies.
        kubectl: the command, with what it needs to find the cluster.
    """

    def __init__(self, folder: Path, kubectl: Sequence[str]) -> None:
        self._folder = folder
        self._argv = (sys.executable, "-m", "gantry_chaos.watchdog", str(folder), *kubectl)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with (self._folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 -- a list of our own words
                self._argv,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it was killed; then nobody watches
            if error is None:
                self._process.stdin.write(ORDERLY)
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):  # it still heals, and ends by itself
            self._process.wait(END_S)
        self._process.returncode = self._process.returncode or 0


def main() -> None:
    """Wait for the end of the run, then heal."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever ends the run may mean its whole group
    folder, *kubectl = sys.argv[1:]
    if sys.stdin.buffer.read() == ORDERLY:
        return
    time.sleep(QUIET_S)
    deadline_s = time.monotonic() + LOCK_S
    while True:
        try:
            for fault in heal(Path(folder), Shell(kubectl)):
                sys.stdout.write(f"{fault}: healed after the run had ended\n")
        except JournalInUseError:
            if time.monotonic() < deadline_s:
                time.sleep(RETRY_S)
                continue
        except GantryError as error:
            sys.exit(str(error))
        return


if __name__ == "__main__":
    main()
