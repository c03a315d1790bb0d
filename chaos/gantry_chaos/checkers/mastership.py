"""The check of the mastership: it moved, or it stayed, as the scenario says. Pure.

The rule protected here: a scenario that is green without the event it was written for says nothing.
A kill of the master after which the same epoch goes on struck somebody else; a delay that moves the
mastership is a needless failover.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gantry_chaos.checkers.verdicts import Verdict, verdict
from gantry_chaos.history.observations import RoleSeen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_chaos.history.observations import Observation
    from gantry_chaos.history.operations import Window

NAME = "mastership"
Expectation = Literal["moves", "stays"]


def check(
    observations: Sequence[Observation], faults: Sequence[Window], expected: Expectation
) -> Verdict:
    """Compare the epochs that masters were seen in with what is expected.

    Args:
        observations: roles among them.
        faults: in the order of their beginnings.
        expected: `moves`: every fault is followed by a higher epoch before the next one begins;
            `stays`: no epoch begins after the first fault.
    """
    seen = sorted(
        (
            observation
            for observation in observations
            if isinstance(observation, RoleSeen) and observation.role == "master"
        ),
        key=lambda item: item.at_ms,
    )
    first_ms = min((fault.start_ms for fault in faults), default=0)
    before = max((item.epoch for item in seen if item.at_ms <= first_ms), default=None)
    violations: list[str] = []
    moves = 0
    if before is None:
        violations.append("No master was seen before the first fault, so nothing is known.")
    else:
        epoch = before
        for number, fault in enumerate(faults):
            ends = [other.start_ms for other in faults[number + 1 :]]
            during = [
                item.epoch
                for item in seen
                if fault.start_ms < item.at_ms and all(item.at_ms <= end for end in ends)
            ]
            highest = max([epoch, *during])
            if expected == "moves" and highest == epoch:
                violations.append(
                    f"{fault.name}: the mastership did not move; epoch {epoch} went on."
                )
            if expected == "stays" and highest > epoch:
                violations.append(
                    f"{fault.name}: the mastership moved from epoch {epoch} to {highest}."
                )
            moves += highest - epoch
            epoch = highest
    return verdict(NAME, {"expected": expected, "epochsBegun": moves}, violations)
