"""Processes of ours on this machine: bare controllers and brokers on loopback, nothing around them.

For measurements in which an operator and an API server would only take part as noise. Rule
protected: whatever ends the measurement, its processes end with it. What it refuses: to go on
without a process that ended by itself; the sentence says which, and where its log is.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

from gantry_protocol.errors import GantryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

HOST = "127.0.0.1"
STOP_PATIENCE_S = 20.0


class Processes:
    """By name; ``end`` them whatever happens.

    Args:
        directory: for data and logs; it exists.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._running: dict[str, asyncio.subprocess.Process] = {}

    @property
    def names(self) -> list[str]:
        """Those that run, or ended by themselves."""
        return list(self._running)

    def pid(self, name: str) -> int:
        """Its process id."""
        return self._running[name].pid

    async def start(self, name: str, program: Sequence[str], variables: Mapping[str, str]) -> None:
        """Start `python -m PROGRAM` with its own directory and log, and no settings of ours."""
        assert name not in self._running, name
        inherited = {key: value for key, value in os.environ.items() if key[:7] != "GANTRY_"}
        own = {"GANTRY_NAME": name, "GANTRY_DATA_DIR": str(self.directory / name)}
        with self._log(name).open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", *program),
                env={**inherited, **own, **variables},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is ours; the others end in order
            )

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send it a signal."""
        self._running[name].send_signal(number)

    async def kill(self, name: str) -> None:
        """SIGKILL, and until it is gone."""
        process = self._running.pop(name)
        process.kill()
        await process.wait()

    async def end(self, names: Iterable[str] | None = None) -> None:
        """End these, or all, in order if they can; until they are gone."""
        chosen = self.names if names is None else list(names)
        await asyncio.gather(*(_end(self._running.pop(name)) for name in chosen))

    def check(self) -> None:
        """Raise if a process has ended by itself."""
        for name, process in self._running.items():
            if process.returncode is not None:
                raise GantryError(
                    f"The process of {name} ended with {process.returncode}; its log is "
                    f"{self._log(name)}."
                )

    def _log(self, name: str) -> Path:
        return self.directory / f"{name}.log"


async def _end(process: asyncio.subprocess.Process) -> None:
    """SIGTERM, and SIGKILL if that is not enough."""
    if process.returncode is None:
        process.send_signal(signal.SIGCONT)  # one that stands still cannot end
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_PATIENCE_S):
                await process.wait()
        except TimeoutError:
            process.kill()
    await process.wait()
