"""Whom a fault of a time line strikes, by its selectors. Pure but for the random choice."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from gantry_chaos.manifests.selection import select

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_chaos.core.timeline import Fault, Timeline
    from gantry_chaos.manifests.selection import Pod


def sources(fault: Fault, pods: Sequence[Pod], random: Random) -> list[Pod]:
    """The pods that `selector` chooses.

    Raises:
        SelectionError: nobody matches.
    """
    what = f"{fault.where}.selector"
    return select(fault.spec, pods, namespace=fault.namespace, random=random, what=what)


def targets(fault: Fault, pods: Sequence[Pod], random: Random) -> list[Pod]:
    """The pods that a fault concerns besides those it strikes; nobody if it has no `target`.

    Raises:
        SelectionError: nobody matches.
    """
    if fault.spec.towards is None:
        return []
    what = f"{fault.where}.target.selector"
    return select(fault.spec.towards, pods, namespace=fault.namespace, random=random, what=what)


def preflight(timeline: Timeline, pods: Sequence[Pod]) -> None:
    """Find a selector that matches nobody before anything is done, not in the middle of a run.

    Raises:
        SelectionError: the first such selector.
    """
    for fault in timeline.faults:
        sources(fault, pods, Random(0))  # noqa: S311
        targets(fault, pods, Random(0))  # noqa: S311
