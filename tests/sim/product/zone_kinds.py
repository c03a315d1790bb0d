"""Kinds of runs in which the master of the group is wished in a zone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest import mock

from gantry_local.apiserver.errors import StatusError
from gantry_operator import names
from gantry_operator.plan import preferred
from sim.kernel.world import Violation
from sim.product.cluster import GROUP
from sim.product.kinds import PEACE_S
from sim.product.operated import BROKERS, OperatedCluster
from sim.product.operated_kinds import OperatedRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from gantry_local.kubelet.environment import Launch
    from sim.product.operated import PodNode
    from sim.product.workload import Load

ZONES = ("a", "b", "c")
WAIT_S, WAIT_MAX_S, LASTED_S = 4, 8, 20
"""Instead of minutes and hours."""


def zone_of(ordinal: int) -> str:
    """The zone of a replica's volume, and so of all its pods."""
    return ZONES[ordinal % len(ZONES)]


class ZonedCluster(OperatedCluster):
    """Pods get the zone of their node as a label when they begin to run."""

    def place(self, component: str, launch: Launch) -> PodNode:
        name = launch.env["GANTRY_NAME"]
        if name.startswith(f"{BROKERS}-"):
            asyncio.get_running_loop().call_soon(self._label, name)
        return super().place(component, launch)

    def _label(self, name: str) -> None:
        labels = {names.LABEL_ZONE: zone_of(names.ordinal(name) or 0)}
        try:
            self.change("pods", name, {"metadata": {"labels": labels}}, group="")
        except StatusError:
            self.world.count("zone-too-late")  # the pod is gone


class ZonesRun(OperatedRun):
    """A group whose master is wished in one zone or two, among faults; and people who move it.

    In peace the master is in the best zone that has a replica. Where a person moved it, it stays
    until the request is taken back.
    """

    cluster_class = ZonedCluster

    def settings(self, rng: Random) -> dict[str, Any]:
        named = super().settings(rng)
        self._zones = rng.sample(ZONES, rng.choice([1, 2, 2]))
        return named | {"group_spec": {"preferredMaster": {"zones": self._zones}}}

    def play(self) -> None:
        """Raises Violation."""
        waits = {"WAIT_S": WAIT_S, "WAIT_MAX_S": WAIT_MAX_S, "LASTED_S": LASTED_S}
        with mock.patch.multiple(preferred, **waits):
            super().play()

    def settle(self, loads: Sequence[Load]) -> None:
        self.rest()
        self._come_home()
        self._go_and_return()
        super().settle(loads)

    def _come_home(self) -> None:
        """The last request of a person is taken back. Raises Violation."""
        self._cluster.change("brokergroups", GROUP, {"spec": {"switchover": None}})
        if not self._cluster.run(PEACE_S, until=self._is_home):
            raise Violation(f"the master is not where it is wished: {self._told()}")
        self._cluster.world.count("home")

    def _go_and_return(self) -> None:
        """A person moves the master away. Raises Violation."""
        cluster, rng = self._cluster, self.world.stream("zones")
        away = [one for one in range(cluster.replicas) if zone_of(one) != self._home()]
        if not away or self._home() is None:
            return
        to = rng.choice(away)
        wish = {"switchover": {"id": "away", "to": to}}
        cluster.change("brokergroups", GROUP, {"spec": wish})
        if not cluster.run(PEACE_S, until=lambda: self._leads() == to):
            raise Violation(f"nobody moves the master to {to}: {self._told()}")
        cluster.run(2 * WAIT_MAX_S)
        if self._leads() != to:
            raise Violation(f"a person wanted {to}, and it moved on: {self._told()}")
        self._come_home()

    def _home(self) -> str | None:
        """The best zone that has a replica."""
        there = {zone_of(ordinal) for ordinal in range(self._cluster.replicas)}
        return next((zone for zone in self._zones if zone in there), None)

    def _is_home(self) -> bool:
        home, told = self._home(), self._told()
        if home is None:
            return told.get("state") == "Kept"
        leads = self._leads()
        return told.get("state") == "Preferred" and leads is not None and zone_of(leads) == home

    def _leads(self) -> int | None:
        found = self._status().get("master") or {}
        leads: int | None = found.get("replica")
        return leads

    def _told(self) -> dict[str, Any]:
        return dict(self._status().get("preferredMaster") or {})

    def _status(self) -> dict[str, Any]:
        return dict(self._cluster.resource("brokergroups", GROUP).get("status") or {})
