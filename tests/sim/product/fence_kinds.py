"""Runs in which a person takes a member out of its group, and lets it in again.

Meanwhile its process may start anew, and all others lose their power: it gets no byte, nobody
elects it however long the others are away, and sends are answered without it. Let in again it is
whole, and nothing that was acknowledged is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_broker.replica import Role
from sim.kernel.world import Violation
from sim.product.cluster import GROUP
from sim.product.loss_kinds import MORE, PATH, WAIT_S, LossRun

if TYPE_CHECKING:
    from sim.product.cluster import Node

ROUNDS = 2


class FencedRun(LossRun):
    """See the module."""

    mild = ()
    stories = ("fenced",)

    def _fenced(self, rng: Any) -> None:
        """Rounds, each to the end. Raises Violation."""
        for _ in range(ROUNDS):
            self._take_out(rng)
            self.recover()

    def _take_out(self, rng: Any) -> None:
        cluster = self._cluster
        out: Node = rng.choice([node for node in cluster.brokers if node is not cluster.master()])
        others = [node for node in cluster.brokers if node is not out]
        leads = self._view()["masterBrokerId"]
        self._ask("PUT", f"{PATH}/fence", {"brokerId": leads, "fenced": True}, 409)
        wish = {"brokerId": self._id_of(out), "fenced": True}
        self._ask("PUT", f"{PATH}/fence", wish, 200)
        self._until("it stands aside", lambda: self._stands_aside(out))
        if rng.random() < 0.5:
            out.kill()
            out.boot()
            self._until("it still does", lambda: self._stands_aside(out))
        end = int(cluster.group_of(out).core.log.end)
        acks = self._watch.acks
        self._until("sends are answered", lambda: self._watch.acks > acks + MORE)
        self._ask("PUT", f"{PATH}/fence", {**wish, "brokerId": self._id_of(others[0])}, 409)
        self._go_down(others)
        if cluster.run(WAIT_S, until=lambda: cluster.master() is not None):
            raise Violation(f"H14: {cluster.master()} is elected, and {out.name} is fenced")
        for node in others:
            node.boot()
        self._until("another serves", lambda: cluster.master() in others)
        self._until("it stands aside", lambda: self._stands_aside(out))
        if int(cluster.group_of(out).core.log.end) != end:
            raise Violation(f"H14: {out.name} is fenced, and has got bytes beyond {end}")
        self._ask("PUT", f"{PATH}/fence", {**wish, "fenced": False}, 200)

    def _stands_aside(self, node: Node) -> bool:
        group = self._cluster.group_of(node, GROUP)
        return group is not None and group.core is not None and group.core.role is Role.FENCED
