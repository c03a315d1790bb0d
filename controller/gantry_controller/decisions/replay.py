"""The Raft core as a machine whose recorded steps can be taken once more; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.steps.replay import CoreKind

from gantry_controller.decisions import told
from gantry_controller.decisions.plain import PLAIN
from gantry_controller.decisions.state import core_of, state_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_protocol.steps.files import StretchRead
    from gantry_protocol.steps.replay import SameChance

    from gantry_controller.raft.core import RaftCore

INPUTS: dict[str, Callable[[RaftCore, Any], Any]] = {
    "tick": lambda core, _: core.tick(),
    "leader_lost": lambda core, given: core.leader_lost(given),
    "connection_changed": lambda core, given: core.connection_changed(given),
    "say_layout": lambda core, given: core.say_layout(given),
    "propose": lambda core, given: core.propose(told.commands_again(given)),
    "read_index": lambda core, given: core.read_index([None] * given),
    "read_anywhere": lambda core, given: core.read_anywhere([None] * given),
    "set_lease": lambda core, given: core.set_lease(on=given),
    "barrier": lambda core, _: core.barrier(),
    "transfer": lambda core, given: core.transfer(given),
    "add_learner": lambda core, given: core.add_learner(*given),
    "promote": lambda core, given: core.promote(given),
    "remove": lambda core, given: core.remove(given),
    "step": lambda core, given: core.step(told.message_again(given)),
    "persisted": lambda core, given: core.persisted(given),
    "applied": lambda core, given: core.applied(given),
    "compact": lambda core, given: told.result_told(core.compact(*given)),
    "snapshot_offered": lambda core, given: core.snapshot_offered(*given),
    "install": lambda core, given: told.result_told(core.install(given)),
    "snapshot_delivered": lambda core, given: core.snapshot_delivered(*given),
    "digest_taken": lambda core, given: core.digest_taken(given),
    "ready": lambda core, given: told.ready_told(core.ready(given)),
}
"""Every input of a core; what a recorded one is taken by."""


def _label(kind: str, given: Any) -> str:
    """The kind of an input and what it is about."""
    if isinstance(given, dict) and len(given) == 1:
        ((name, fields),) = given.items()
        if isinstance(fields, dict):
            inner = fields.get("append")
            if isinstance(inner, dict) and isinstance(inner.get("Append"), dict):
                name, fields = "Append", inner["Append"]
            source = fields.get("source")
            return f"{kind} {name}" + ("" if source is None else f" of node {source}")
    return kind


def _core(stretch: StretchRead, chance: SameChance, place: str) -> RaftCore:
    return core_of(stretch.state, stretch.sizes, stretch.runs, chance, place)


RAFT = CoreKind("raft", "gantry_controller.raft", PLAIN, INPUTS, _core, state_of, _label)
