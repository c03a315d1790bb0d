"""Cases of a benchmark, one after another; what one of them cannot do is told in the end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import click
from gantry_protocol.errors import GantryError

from gantry_cli.bench.showing import print_lines
from gantry_cli.output import print_json
from gantry_cli.progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gantry_cli.bench.results import Line, Machine

WishT = TypeVar("WishT")
StageT = TypeVar("StageT")
_WishT_contra = TypeVar("_WishT_contra", contravariant=True)
_StageT_contra = TypeVar("_StageT_contra", contravariant=True)


class CannotRun(GantryError):  # noqa: N818 - a plain word reads better where it is caught
    """This case has nothing to measure here; says why."""


class Runnable(Protocol[_WishT_contra, _StageT_contra]):
    """A case."""

    @property
    def steps(self) -> Callable[[_WishT_contra], int]:
        """How often it calls `advance`."""
        ...

    @property
    def seconds(self) -> Callable[[_WishT_contra], float]:
        """About how long it takes."""
        ...

    async def lines(self, name: str, stage: _StageT_contra) -> list[Line]:
        """Run it.

        Raises:
            CannotRun: not here.
            GantryError: it failed.
        """
        ...


class Run(Generic[WishT, StageT]):
    """All cases that were asked for.

    Args:
        cases: those there are.
        names: of those to run.
        wish: what was asked for.
        stage: where a case runs, given what it calls after each run, and what it tells people with.
        as_json: whether lines are printed as soon as they are known.
    """

    def __init__(
        self,
        cases: Mapping[str, Runnable[WishT, StageT]],
        names: Sequence[str],
        wish: WishT,
        stage: Callable[[Callable[[], None], Callable[[str], None]], StageT],
        *,
        as_json: bool,
    ) -> None:
        self.found: list[Line] = []
        self.failed: list[str] = []  # whose logs are worth a look
        self.refused: list[str] = []
        self._cases = cases
        self._names = names
        self._wish = wish
        self._stage = stage
        self._as_json = as_json

    async def all(self) -> None:
        """Run them."""
        cases, wish = self._cases, self._wish
        estimate_s = sum(cases[name].seconds(wish) for name in self._names)
        click.echo(f"About {max(estimate_s / 60, 1):.0f} min on a quiet machine.", err=True)
        with progress(sum(cases[name].steps(wish) for name in self._names)) as advance:
            for name in self._names:
                stage = self._stage(partial(advance, name), partial(_say, name))
                await self._one(name, stage)

    def show(self, label: str, before: Machine) -> None:
        """Print what is not printed yet, and the machine as it was `before`."""
        if self._as_json:
            print_json({"bench": label, "machine": before})
        elif self.found:
            print_lines(self.found, before, as_json=False)

    async def _one(self, name: str, stage: StageT) -> None:
        try:
            found = await self._cases[name].lines(name, stage)
        except CannotRun as error:
            self.refused.append(f"{name} {error}.")
            return
        except GantryError as error:
            self.failed.append(f"{name}: {error}")
            return
        self.found += found
        if self._as_json:
            for line in found:
                print_json(line)


def _say(name: str, text: str) -> None:
    click.echo(f"{name}: {text}", err=True)
