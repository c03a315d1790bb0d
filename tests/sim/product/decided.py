"""What operators and controllers have recorded of themselves, as who asks for a bundle gets it.

Each decision of an operator that is made again from the record is the same, to the letter, by the
planner that made it; none was too strange to be written down; and no secret of the cluster is in
the record. Each step of a controller that is taken again has the same outcome.
"""

from __future__ import annotations

from base64 import b64decode
from typing import TYPE_CHECKING

from gantry_controller.decisions.files import steps_of, written_file
from gantry_controller.decisions.replay import fingerprint, retaken
from gantry_operator.decisions.recorder import written
from gantry_operator.decisions.replay import recording_of, replayed
from sim.kernel.world import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

    from gantry_operator.decisions.recorder import Decision
    from gantry_operator.decisions.serving import Decisions
    from sim.product.cluster import Cluster
    from sim.product.operated import OperatedCluster

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
    ring = controller.node.steps
    if ring.ended:
        raise Violation(f"steps: {node.name} does not record any more: {ring.ended}")
    data = written_file(ring.held(), process=node.name, version="simulated", code=fingerprint())
    for outcome in retaken(steps_of(data, node.name), node.name):
        if outcome.difference is not None:
            raise Violation(f"steps: {node.name} takes another one: {outcome.difference}")
        cluster.world.count("stretches-again")
