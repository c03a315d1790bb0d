"""Cases of a benchmark, one after another; what one of them cannot do is told in the end.

Rule protected: no case runs for ever. One that takes several times as long as it should is ended
and has failed; the next ones run all the same.
"""

from __future__ import annotations

import asyncio
import signal
from functools import partial
from typing import TYPE_CHECKING

import click
from gantry_cli.output import print_json
from gantry_cli.progress import estimated
from gantry_protocol.errors import GantryError

from gantry_lab.bench.results import lines, show
from gantry_lab.bench.stage import BenchStage, CannotRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gantry_cli.progress import Estimate

    from gantry_lab.bench.results import FigureLine, Machine
    from gantry_lab.bench.suite import Case, Wish

LIMIT_TIMES, LIMIT_S = 4.0, 120.0
"""A case is ended after so many times its estimate, and this: a busy machine is slow, too."""


class BenchRun:
    """All cases that were asked for.

    Args:
        cases: those to run.
        wish: what was asked for.
        directory: for data and logs; it exists.
        as_json: whether lines are printed as soon as they are known.
    """

    def __init__(
        self, cases: Sequence[Case], wish: Wish, directory: Path, *, as_json: bool
    ) -> None:
        self.found: list[FigureLine] = []
        self.failed: list[str] = []  # whose logs are worth a look
        self.refused: list[str] = []
        self._cases = cases
        self._wish = wish
        self._directory = directory
        self._as_json = as_json

    async def all(self) -> None:
        """Run them; SIGTERM ends them as Ctrl-C does, with every process they have started."""
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        estimate_s = sum(case.seconds(self._wish) for case in self._cases)
        click.echo(f"About {max(estimate_s / 60, 1):.0f} min on a quiet machine.", err=True)
        with estimated(estimate_s) as shown:
            for case in self._cases:
                await self._one(case, shown)

    def show(self, before: Machine) -> None:
        """Print what is not printed yet, and the machine as it was `before`."""
        if self._as_json:
            print_json({"bench": self._wish.label, "machine": before})
        elif self.found:
            show(self.found, before)

    async def _one(self, case: Case, shown: Estimate) -> None:
        wish, seconds = self._wish, case.seconds(self._wish)
        part = shown.part(case.name, case.steps(wish), seconds)
        stage = BenchStage(wish, case, self._directory, part, partial(shown.say, case.name))
        limit_s = LIMIT_TIMES * seconds + LIMIT_S
        try:
            async with asyncio.timeout(limit_s) as limit:
                runs = await case.measure(stage)
        except CannotRun as error:
            self.refused.append(f"{case.name} {error}.")
        except GantryError as error:
            self.failed.append(f"{case.name}: {error}")
        except TimeoutError:
            if not limit.expired():
                raise
            self.failed.append(f"{case.name}: ended after {limit_s / 60:.0f} min, not being done.")
        else:
            self._note(lines(case.name, runs, bench=wish.label))

    def _note(self, found: Sequence[FigureLine]) -> None:
        self.found += found
        if self._as_json:
            for line in found:
                print_json(line)
