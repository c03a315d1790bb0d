"""A kind of run in which the operator is newer than the definitions of its resources."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from gantry_local.apiserver import structural
from gantry_local.apiserver.admission import Options
from gantry_operator.api.kinds import CUSTOM
from sim.kernel.world import SECOND, Violation
from sim.product import faults
from sim.product.kinds import FAULTS_S
from sim.product.operated import OperatedCluster
from sim.product.operated_kinds import OperatedRun
from support.old_definitions import newer, older

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.product.workload import Load

Object = dict[str, Any]
DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")
SHARES = (0.05, 0.2, 0.5)  # of the fields that may be missing, those that are
BEGINS_WITHOUT = LATER_SHARE = 0.5  # of the runs
FIRST_S = 8
NAMED = frozenset(
    {"controllerRef", "name", "replicas", "replication", "minInSyncReplicas", "storage", "size"}
    | {"clients", "door", "enabled", "config"}
)


class OldDefinitionsCluster(OperatedCluster):
    """The definitions lack fields at first, and whenever they are made older.

    As on a real API server, objects are read without the fields that their definition lacks and
    with the defaults that it has, and watches end. Here what is not read is gone for good.
    """

    def definitions(self) -> list[Object]:
        """Those that there are at first."""
        rng = self.world.stream("definitions")
        if rng.random() < BEGINS_WITHOUT:
            return super().definitions()
        self.world.after(rng.randrange(FIRST_S * SECOND), self._renew_first)
        return self._older()

    def _renew_first(self) -> None:
        """Raises Violation: an operator has made something by definitions that it knows more of."""
        if made := self.objects("statefulsets", "apps"):
            raise Violation(f"definitions: {made[0]['metadata']['name']} was made by older ones")
        self.world.count("older-at-first")
        self.renew_definitions()

    def advance_definitions(self) -> None:
        """Those of a later version come, before its operator."""
        self._replace([newer(found) for found in super().definitions()])

    def age_definitions(self) -> None:
        """Somebody goes back to those of an earlier version."""
        self._replace(self._older())

    def renew_definitions(self) -> None:
        """Those of this version come."""
        self._replace(super().definitions())

    def _older(self) -> list[Object]:
        rng = self.world.stream("definitions")
        share = rng.choice(SHARES)
        return [older(rng, share, found, NAMED) for found in super().definitions()]

    def _replace(self, definitions: list[Object]) -> None:
        """``kubectl replace``: nothing of those before stays, and what is read is as they say."""
        assert self.registry is not None
        catalogue = self.registry.catalogue
        resource = catalogue.type(*DEFINITIONS)
        for found in definitions:
            name = found["metadata"]["name"]
            live = self.registry.get(resource, "", name).obj
            self.registry.update(
                resource, "", name, live | {"spec": found["spec"]}, Options(manager="people")
            )
        for kind in CUSTOM:
            schema = catalogue.type(kind.group, kind.plural).schema
            for record in self.registry.store.records((kind.group, kind.plural)):
                record.obj, record._encoded = copy.deepcopy(record.obj), None
                structural.prune(record.obj, schema)
                structural.apply_defaults(record.obj, schema)
        self.unkind.cut_watches()


class OldDefinitionsRun(OperatedRun):
    """Definitions that are older than the operator: at its start, and once more later on.

    While they are, no resource is touched. Once they are renewed all is as in other runs, also
    where those of a later version come at last.
    """

    cluster_class = OldDefinitionsCluster
    _cluster: OldDefinitionsCluster

    def disturb(self) -> None:
        rng, cluster = self.world.stream("definitions"), self._cluster
        faults.plan(cluster, self.schedule)
        times_s = sorted(rng.random() * FAULTS_S for _ in range(2))
        cluster.run(times_s[0])
        cluster.age_definitions()
        cluster.run(times_s[1] - times_s[0])
        cluster.renew_definitions()
        cluster.run(FAULTS_S - times_s[1])

    def settle(self, loads: Sequence[Load]) -> None:
        if self.world.stream("definitions").random() < LATER_SHARE:
            self._cluster.advance_definitions()
            self.world.count("newer-in-peace")
        super().settle(loads)
