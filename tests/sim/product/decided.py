"""What operators and controllers have recorded of themselves, as who asks for a bundle gets it.

Each decision of an operator that is made again from the record is the same, to the letter, by the
planner that made it; none was too strange to be written down; and no secret of the cluster is in
the record. Each step of a controller or a replica that is taken again has the same outcome.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

from gantry_broker.decisions.replay import REPLICA
from gantry_controller.decisions.replay import RAFT
from gantry_operator.decisions.recorder import written
from gantry_operator.decisions.replay import recording_of, replayed
from gantry_protocol.steps.files import steps_of, written_file
from gantry_protocol.steps.replay import retaken
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from random import Random

    from gantry_operator.decisions.recorder import Decision
    from gantry_operator.decisions.serving import Decisions
    from gantry_protocol.steps.replay import CoreKind
    from gantry_protocol.steps.ring import StepRing
    from sim.product.cluster import Cluster
    from sim.product.operated import OperatedCluster

RETAKEN_SHARE = 0.25  # to take the steps of a broker again takes seconds
SECRET_MIN = 8  # bytes; what is shorter may stand anywhere


class Decided:
    """Judges what operators have recorded since the last time.

    Args:
        cluster: of which.
        hidden: more that no record may have, beside the Secrets of the cluster.
    """

    def __init__(self, cluster: OperatedCluster, hidden: Iterable[str] = ()) -> None:
        self._cluster = cluster
        self._hidden = {text.encode() for text in hidden}
        self._judged: set[Decision] = set()

    def judge(self) -> None:
        """Raises Violation: an operator has recorded what is not so, or what it must not."""
        secrets = self._hidden | set(_secrets(self._cluster))
        for node in self._cluster.operators:
            process = node.process
            rings = None if process is None else process.globals.get("Decisions")
            if rings is not None and process is not None and not process.is_dead:
                self._judge(node.name, rings, secrets)

    def _judge(self, name: str, rings: Decisions, secrets: set[bytes]) -> None:
        if rings.groups._told or rings.entities._told:
            raise Violation(f"decisions: {name} could not write one down")
        held = [*rings.groups.of(None), *rings.entities.of(None)]
        data = written(
            [one for one in held if one not in self._judged], version="simulated", dropped=0
        )
        self._judged.update(held)
        if any(secret in data for secret in secrets):
            raise Violation(f"decisions: {name} gives a secret away")
        recording = recording_of(data, name)
        for number, one in enumerate(recording.decisions):
            outcome = replayed(recording, one, f"{name}, decision {number}")
            if outcome.differences:
                raise Violation(
                    f"decisions: {name} would decide otherwise about {one.kind} {one.name} at "
                    f"{one.first}: {outcome.differences[0]}"
                )
            self._cluster.world.count("decisions-altered" if one.altered else "decisions-again")


def _secrets(cluster: OperatedCluster) -> Iterator[bytes]:
    for secret in cluster.objects("secrets"):
        for file, text in (secret.get("data") or {}).items():
            value = b64decode(text)
            if len(value) >= SECRET_MIN and not file.endswith(".crt"):
                yield value
                yield text.encode()


def judge_steps(cluster: Cluster, rng: Random) -> None:
    """Of one controller. Raises Violation: its record is none, or a step is another one now."""
    node = rng.choice(cluster.controllers)
    controller = cluster.controller_of(node)
    if controller is None:
        raise Violation(f"steps: {node.name} does not run")
    _judge_rings(cluster, RAFT, {"": controller.node.steps}, node.name)


def judge_replica_steps(cluster: Cluster, rng: Random) -> None:
    """The same of all groups of one broker, in one run of some."""
    if not cluster.brokers or rng.random() >= RETAKEN_SHARE:
        return
    node = rng.choice(cluster.brokers)
    group = cluster.group_of(node)
    if group is not None:
        _judge_rings(cluster, REPLICA, group._shared.rings.by_group, node.name)


def _judge_rings(
    cluster: Cluster, machine: CoreKind, rings: Mapping[str, StepRing], name: str
) -> None:
    held = {}
    for of, ring in rings.items():
        if ring.ended:
            raise Violation(f"steps: {name} does not record any more: {ring.ended}")
        held[of] = ring.held()
    data = written_file(
        held,
        machine.plain,
        core=machine.core,
        process=name,
        version="simulated",
        code=machine.fingerprint(),
    )
    for outcome in retaken(machine, steps_of(data, name), name):
        if outcome.difference is not None:
            raise Violation(f"steps: {name} takes another one: {outcome.difference}")
        cluster.world.count("stretches-again")
