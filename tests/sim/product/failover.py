"""The operator never makes a failover worse: the same kills with and without one.

python -m sim.product.failover 0-7

Each seed is played twice. Both times the operator has made the cluster; then it goes on, while the
API server is as unkind as the seed says, or it ends with the kills and does not come back. What
counts is the longest time in which no client was answered.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import sys
from typing import TYPE_CHECKING, Any

from sim.kernel.world import Violation
from sim.product import faults
from sim.product.faults import Fault
from sim.product.operated_faults import API_FAULTS
from sim.product.operated_kinds import OperatedRun
from sim.product.operated_watch import OperatorWatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

STAND_S = 60  # until everything stands, and the operator rests
FAULTS_S = 12
KILLS_MS = (2_000, 7_000)
AWAY_MS = 3_000
API_FAULTS_COUNT = 4
LATE_S = 0.1  # clients try again at moments of their own


class FailoverRun(OperatedRun):
    """Kills of the master, with an operator or without.

    Args:
        seed: names it; the kills are the same with and without an operator.
        attended: whether the operator goes on.

    Attributes:
        gap_s: the longest time in which no send was answered.
    """

    def __init__(self, seed: int, *, attended: bool) -> None:
        super().__init__(seed, [])
        rng = self.world.stream("failover")
        kills = [Fault(at_ms, "kill-master", 0, AWAY_MS) for at_ms in KILLS_MS]
        unkind = _unkind(rng)
        self.schedule = kills + (unkind if attended else [])
        self.gap_s = 0.0
        self._attended = attended

    def act(self) -> None:
        """Raises Violation."""
        cluster, watch = self._cluster, self._watch
        operators = OperatorWatch(cluster, watch)
        loads = self.loads()
        cluster.boot()
        for load in loads:
            load.start()

        def stands() -> bool:
            return cluster.is_whole and watch.acks > 0 and not operators.unsettled()

        if not cluster.run(STAND_S, until=stands):
            raise Violation(f"the group does not come to stand: {operators.unsettled()}")
        if not self._attended:
            for node in cluster.operators:
                node.wanted = False
                node.kill()
        operators.forget()
        faults.plan(cluster, self.schedule)
        cluster.run(FAULTS_S)
        self.gap_s = operators.gap_us / 1e6


def _unkind(rng: Random) -> list[Fault]:
    """What the API server does meanwhile."""
    kinds = list(API_FAULTS)
    return [
        Fault(rng.randrange(500, 8_000), rng.choice(kinds), rng.randrange(1_000), AWAY_MS)
        for _ in range(API_FAULTS_COUNT)
    ]


def compare(seeds: Iterable[int]) -> dict[str, Any]:
    """The gaps of ``seeds`` in seconds, with and without an operator.

    Raises:
        Violation: as in any run.
    """
    gaps: dict[str, list[float]] = {"with": [], "without": []}
    for seed in seeds:
        for name, found in gaps.items():
            run = FailoverRun(seed, attended=name == "with")
            run.play()
            found.append(run.gap_s)
    return {
        name: {
            "min": min(found),
            "median": statistics.median(found),
            "max": max(found),
            "gaps": found,
        }
        for name, found in gaps.items()
    }


def is_worse(compared: dict[str, Any]) -> bool:
    """Whether an operator made the longest gap, or the usual one, longer."""
    there, away = compared["with"], compared["without"]
    return bool(there["max"] > away["max"] + LATE_S or there["median"] > away["median"] + LATE_S)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 when failovers are worse with an operator."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("seeds", help="a number, or FROM-TO")
    first, _, last = parser.parse_args(arguments).seeds.partition("-")
    logging.getLogger("gantry").setLevel("CRITICAL")
    compared = compare(range(int(first), int(last or first) + 1))
    print(json.dumps(compared))
    return int(is_worse(compared))


if __name__ == "__main__":
    sys.exit(main())
