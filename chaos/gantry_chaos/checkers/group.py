"""A broker group as one object that clients read and change: its states and what is legal. Pure.

The state is upstream's: the master, its epoch, the sync-state set, and the set's epoch. Three
operations touch it. `get` (1004) tells it. `alter` (1001) replaces the set if the asker names the
master, its epoch and the set's epoch (a compare-and-set). `designate` (1002 with a target) makes a
member of the set master if the asker names the epoch.

The rule protected here: a refusal says that something differs, so it is legal only in a state in
which that very thing differs. Refusals that rest on evidence (a member is not alive, nobody can be
elected) say nothing about the state and are not taken.

What it does not know: elections that happen by themselves. A history is recorded while every broker
lives, or it will be found wrong.
"""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gantry_chaos.history.operations import Operation

OPERATIONS = ("get", "alter", "designate")
NO_MASTER = 0
MEMBERS_MAX = 8  # the heirs of a lost election are any of its subsets

# Upstream's codes for the one thing that differs; all others rest on evidence.
FENCED_MASTER_EPOCH = 2000
FENCED_SET_EPOCH = 2001
INVALID_MASTER = 2002
MASTER_STILL_EXISTS = 2011
ALTER_FAILED = 2013
TELLING = (FENCED_MASTER_EPOCH, FENCED_SET_EPOCH, INVALID_MASTER, MASTER_STILL_EXISTS, ALTER_FAILED)

_STATE = re.compile(r"(\d{1,18}):(\d{1,18}):(\d{1,18}):((?:\d{1,18}(?:,\d{1,18})*)?)")


class GroupState(NamedTuple):
    """A group; as text `EPOCH:MASTER:SET_EPOCH:MEMBER,MEMBER`.

    Attributes:
        master: its broker id; `NO_MASTER` before the first election.
        members: of the sync-state set, ascending.
    """

    epoch: int
    master: int
    set_epoch: int
    members: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.epoch}:{self.master}:{self.set_epoch}:{','.join(map(str, self.members))}"


class GroupOperation(msgspec.Struct, frozen=True):
    """One operation on one group, as both oracles take it.

    Attributes:
        asked: what an `alter` or `designate` claims and wants; of `designate` the master is the
            wanted one, and the set says nothing.
        told: the state that was answered; None: there was no such answer.
        code: 0, or of a refusal.
        called, returned: microseconds; None: it was never answered.
        index: of the log, which the answer reflects; None: the answer did not say.
    """

    client: str
    op: str
    asked: GroupState | None
    told: GroupState | None
    code: int
    called: int
    returned: int | None
    index: int | None

    @property
    def unknown(self) -> bool:
        """Whether it may have taken effect at any time since its call, or never."""
        return self.returned is None

    @property
    def writes(self) -> bool:
        """Whether it surely changed the state."""
        return self.op != "get" and self.code == 0 and not self.unknown

    def __str__(self) -> str:
        wanted = f" {self.asked}" if self.asked is not None else ""
        answer = "no answer"
        if self.returned is not None:
            answer = str(self.told) if self.code == 0 else f"refused with {self.code}"
        place = "" if self.index is None else f" at index {self.index}"
        until = "" if self.returned is None else f" to {self.returned / 1000:.3f}"
        when = f"{self.called / 1000:.3f}{until} ms"
        return f"{self.client} {self.op}{wanted}: {answer}{place} ({when})"


def outcomes(state: GroupState, step: GroupOperation) -> Iterator[GroupState]:
    """The states in which `step` may leave `state`; none if it cannot have happened there."""
    if step.op == "get":
        if step.told == state:
            yield state
    elif step.unknown:
        yield from _effects(state, step)
    elif step.code:
        if _refusal(state, step) == step.code:
            yield state
    elif step.told is not None and _allowed(state, step, step.told):
        yield step.told


def _refusal(state: GroupState, step: GroupOperation) -> int:
    """The code that `step` has to be refused with in `state`; 0: none of those that tell."""
    asked = step.asked
    assert asked is not None
    if step.op == "designate":
        if asked.epoch != state.epoch:
            return FENCED_MASTER_EPOCH
        return MASTER_STILL_EXISTS if asked.master == state.master else 0
    if asked.members == state.members:
        return ALTER_FAILED
    if state.master == NO_MASTER or asked.master != state.master:
        return INVALID_MASTER
    if asked.epoch != state.epoch:
        return FENCED_MASTER_EPOCH
    if asked.set_epoch != state.set_epoch:
        return FENCED_SET_EPOCH
    return ALTER_FAILED if state.master not in asked.members else 0


def _allowed(state: GroupState, step: GroupOperation, after: GroupState) -> bool:
    """Whether `step` may have been answered with `after`."""
    asked = step.asked
    assert asked is not None
    if _refusal(state, step):
        return False
    if step.op == "alter":
        return after == state._replace(set_epoch=state.set_epoch + 1, members=asked.members)
    return (
        after.master == asked.master
        and after.master in state.members
        and after.epoch > state.epoch
        and after.set_epoch > state.set_epoch
        and after.master in after.members
        and set(after.members) <= set(state.members)
    )


def _effects(state: GroupState, step: GroupOperation) -> Iterator[GroupState]:
    """What a request without an answer may have done; that it did nothing needs no state."""
    asked = step.asked
    assert asked is not None
    if _refusal(state, step):
        return
    if step.op == "alter":
        yield state._replace(set_epoch=state.set_epoch + 1, members=asked.members)
        return
    if asked.master not in state.members:
        return
    others = [member for member in state.members if member != asked.master]
    for size in range(len(others), -1, -1):
        for heirs in combinations(others, size):
            members = tuple(sorted((asked.master, *heirs)))
            yield GroupState(state.epoch + 1, asked.master, state.set_epoch + 1, members)


def steps(operations: Iterable[Operation]) -> Iterator[tuple[str, GroupOperation]]:
    """The operations on groups as (group, step); what says nothing is left out.

    Raises:
        ValueError: an operation does not say what it must; says which.
    """
    for operation in operations:
        if operation.op not in OPERATIONS or (
            operation.op == "get" and operation.outcome != "SUCCESS"
        ):
            continue
        code = _number(operation, "code", 0) or 0
        if operation.outcome == "FAILURE" and code not in TELLING:
            continue  # it surely did nothing, and says nothing about the state
        answered = operation.outcome != "UNKNOWN" and operation.returned_ms is not None
        called = _number(operation, "called_us", operation.called_ms * 1000)
        last = None if operation.returned_ms is None else operation.returned_ms * 1000 + 999
        asked = None if operation.op == "get" else _state(operation, operation.extra.get("asked"))
        assert called is not None
        yield (
            operation.key or "",
            GroupOperation(
                client=operation.client,
                op=operation.op,
                asked=asked,
                told=_state(operation, operation.value) if operation.outcome == "SUCCESS" else None,
                code=code,
                called=called,
                returned=_number(operation, "returned_us", last) if answered else None,
                index=_number(operation, "index", None),
            ),
        )


def _number(one: Operation, name: str, otherwise: int | None) -> int | None:
    text = one.extra.get(name)
    if text is None:
        return otherwise
    if not re.fullmatch(r"\d{1,18}", text):
        raise ValueError(f"{one.client} {one.op}: its {name} is {text!r}, no number")
    return int(text)


def _state(one: Operation, text: str | None) -> GroupState:
    found = _STATE.fullmatch(text or "")
    if not found:
        what = "EPOCH:MASTER:SET_EPOCH:MEMBERS"
        raise ValueError(f"{one.client} {one.op}: {text!r} is no {what}")
    members = tuple(sorted({int(word) for word in found[4].split(",") if word}))
    if len(members) > MEMBERS_MAX:
        raise ValueError(f"{one.client} {one.op}: more than {MEMBERS_MAX} members")
    return GroupState(int(found[1]), int(found[2]), int(found[3]), members)
