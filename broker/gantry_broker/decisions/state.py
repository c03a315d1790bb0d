"""A replica core's whole state as plain data, and a core that goes on from there; pure."""

from __future__ import annotations

import functools
from array import array
from typing import TYPE_CHECKING, Any, Final

from gantry_protocol import types
from gantry_protocol.steps.plain import NotStepsError, OwnForm, Plain
from gantry_protocol.types import BrokerId, Epoch, EpochEntry, Offset

from gantry_broker.replica import (
    core,
    drain,
    effects,
    events,
    following,
    lineage,
    master,
    membership,
    messages,
    pace,
    saver,
    stall,
    syncset,
    values,
)
from gantry_broker.replica.core import ReplicaCore
from gantry_broker.replica.following import Following
from gantry_broker.replica.lineage import Lineage, LogFacts, StoredState
from gantry_broker.replica.master import Mastership, PendingWrites
from gantry_broker.replica.saver import Saver
from gantry_broker.replica.syncset import Member
from gantry_broker.replica.values import DEFAULT_LIMITS, ControllerView, Limits

if TYPE_CHECKING:
    from gantry_protocol.steps.files import StretchRead


_NAME: Final = ReplicaCore.__name__


def _of_lineage(one: Lineage) -> array[int]:
    return array("q", [part for at in one.entries for part in (at.epoch, at.start_offset)])


def _lineage_of(numbers: array[int]) -> Lineage:
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return Lineage(EpochEntry(Epoch(epoch), Offset(start)) for epoch, start in pairs)


def _of_pending(one: PendingWrites) -> array[int]:
    waiting = one._waiting  # noqa: SLF001 - nobody else reads it
    return array("q", [part for end, until, _ in waiting for part in (end, until)])


def _pending_of(numbers: array[int]) -> PendingWrites:
    made = PendingWrites()
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    waiting = made._waiting  # noqa: SLF001 - as above
    waiting.extend((Offset(end), until, True) for end, until in pairs)
    return made


@functools.cache
def _attributes() -> dict[type[Any], list[str]]:
    """The attributes of objects that list them nowhere."""
    me, view = BrokerId(1), ControllerView(Epoch(1))
    log = LogFacts(
        log_start=Offset(0),
        end=Offset(0),
        flushed=Offset(0),
        stored=StoredState(Epoch(0), Lineage(), Offset(0)),
    )
    made = ReplicaCore(me=me, incarnation="", log=log, now_ms=0)
    follower = Following(me, "", view, log, Saver(), DEFAULT_LIMITS, 0)
    leader = Mastership(me, "", view, log, DEFAULT_LIMITS, 0)
    found = (made, follower, leader, leader.set, made._damage)  # noqa: SLF001 - as above
    return {type(one): list(vars(one)) for one in found}


PLAIN: Final = Plain(
    (
        core, drain, effects, events, following, lineage, master, membership, messages, pace,
        saver, stall, syncset, types, values,
    ),
    held=("writes",),
    shared=(LogFacts, Saver, Limits, Member),
    own={
        Lineage: OwnForm(_of_lineage, _lineage_of),
        PendingWrites: OwnForm(_of_pending, _pending_of),
    },
    renamed={
        "token": "save",
        "_token": "_save",
        "_promotion_token": "_promotion_save",
        "_saving_token": "_saving_save",
    },
    attributes=_attributes,
)  # fmt: skip


def state_of(replica: ReplicaCore) -> dict[str, Any]:
    """Everything that a core's decisions rest on."""
    return {_NAME: PLAIN.fields(replica, _attributes()[ReplicaCore], {})}


def core_of(stretch: StretchRead, place: str) -> ReplicaCore:
    """A core that goes on from the state that a stretch begins with.

    Raises:
        NotStepsError: it is none of this version.
    """
    found = PLAIN.read(stretch.state, f"{place}.state")
    if type(found) is not ReplicaCore:
        raise NotStepsError(f"{place}: this is no state of a replica.")
    return found
