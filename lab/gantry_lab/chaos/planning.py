"""The plan of a time line: what it would do to whom, as rows. Pure but for the random choice."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import msgspec
from gantry_chaos.manifests.selection import matching
from gantry_chaos.plan.targets import preflight, sources, targets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_chaos.core.timeline import Fault, Timeline
    from gantry_chaos.manifests.selection import Pod

HEADINGS = ("AT", "FOR", "FAULT", "WHAT", "WHOM", "TOWARDS")


class PlannedFault(msgspec.Struct, frozen=True, rename="camel"):
    """One fault.

    Attributes:
        whom: pods that are struck; without a seed all that may be.
        how_many: of them are struck.
        towards: the target of a network fault.
    """

    at_s: float
    for_s: float
    fault: str
    what: str
    whom: list[str]
    how_many: str
    towards: list[str]

    def row(self) -> tuple[str, ...]:
        """As a table has it; cells in the order of `HEADINGS`."""
        whom = ", ".join(self.whom)
        return (
            f"{self.at_s:g} s",
            f"{self.for_s:g} s",
            self.fault,
            self.what,
            f"{self.how_many} {whom}".strip(),
            ", ".join(self.towards) or "-",
        )


def steps(timeline: Timeline, pods: Sequence[Pod], seed: int | None) -> list[PlannedFault]:
    """All faults in the order of their beginnings.

    Args:
        timeline: of a manifest.
        pods: everybody.
        seed: of the run; None: not decided yet.

    Raises:
        SelectionError: a selector matches nobody.
    """
    preflight(timeline, pods)
    return [_step(fault, pods, seed) for fault in timeline.faults]


def _step(fault: Fault, pods: Sequence[Pod], seed: int | None) -> PlannedFault:
    random = Random(f"{seed}/{fault.id}")  # noqa: S311 -- as the engine chooses
    possible = matching(fault.spec.selector, pods, fault.namespace)
    fewest, most = fault.spec.count(len(possible))
    how_many = ""
    if seed is None and fewest < len(possible):
        how_many = f"{fewest} of" if fewest == most else f"{fewest} to {most} of"
    chosen = possible if seed is None else sources(fault, pods, random)
    return PlannedFault(
        at_s=fault.start_s,
        for_s=fault.end_s - fault.start_s,
        fault=fault.id,
        what=fault.spec.what(),
        whom=[pod.id for pod in chosen],
        how_many=how_many,
        towards=[pod.id for pod in targets(fault, pods, random)],
    )
