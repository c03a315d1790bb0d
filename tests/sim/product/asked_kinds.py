"""Runs in which a person asks things of a group: see ``asked``."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest import mock

from gantry_operator.plan import broker, controller
from gantry_operator.reconcile import certificates
from sim.kernel.world import Violation
from sim.product import faults
from sim.product.asked import HIDDEN, Asked
from sim.product.cluster import GROUP
from sim.product.decided import Decided
from sim.product.kinds import PEACE_S
from sim.product.operated_faults import API_FAULTS, OPERATOR_FAULTS
from sim.product.operated_kinds import OperatedRun
from sim.product.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from sim.product.workload import Load

LOOK_S, FRESH_S = 3.0, 1.0
"""Instead of a minute and a third of one: how often Secrets of listeners are read."""
JUDGED_S, PATIENCE_S = 10, 5 * PEACE_S
WISHES = ("roll-brokers", "roll-controllers", "switchover", "delete-pod")


class AskedRun(OperatedRun):
    """See the module; in the end the operators' records of their decisions are judged."""

    def settings(self, rng: Random) -> dict[str, Any]:
        """No other person changes the number of replicas."""
        named = super().settings(rng)
        possible = (*faults.KINDS, *API_FAULTS, *OPERATOR_FAULTS, *WISHES)
        self.kinds = [kind for kind in possible if rng.random() < 0.2] or ["operator-kill"]
        return named

    def play(self) -> None:
        """Raises Violation."""
        with ExitStack() as stack:
            for module in (broker, controller):
                stack.enter_context(mock.patch.object(module, "LOOK_S", LOOK_S))
            stack.enter_context(mock.patch.object(certificates, "FRESH_S", FRESH_S))
            super().play()

    def loads(self) -> Sequence[Load]:
        """Few messages beside."""
        self._asked = Asked(self._cluster, self._watch)
        return [Workload(self._cluster, self._watch, producers=1, group=GROUP), self._asked]

    def act(self) -> None:
        """Raises Violation."""
        self._decided = Decided(self._cluster, HIDDEN)
        super().act()
        self._decided.judge()

    def disturb(self) -> None:
        """And a person begins to ask."""
        self._asked.rests = False
        super().disturb()

    def recover(self) -> None:
        """While nothing new is asked. Raises Violation."""
        asked = self._asked
        asked.rests = True
        self._decided.judge()
        if not self._cluster.run(PEACE_S, until=lambda: not asked.deed):
            raise Violation(f"{asked.deed} is not done: {asked.waits_for}: {asked.told()}")
        super().recover()
        self._asked.rests = False

    def settle(self, loads: Sequence[Load]) -> None:
        asked, cluster = self._asked, self._cluster
        for _ in range(PATIENCE_S // JUDGED_S):
            if cluster.run(JUDGED_S, until=lambda: asked.is_settled):
                break
            self._decided.judge()  # the next ones need the room
        else:
            raise Violation(f"{asked.unsettled}: {asked.waits_for}: {asked.told()}")
        super().settle(loads)
