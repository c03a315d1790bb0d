"""A change before it happens: the plan, made again and again for the world that would follow.

There is no second planner. The one that acts is asked what it would do, that is supposed to be done
(`supposed`), and it is asked again, until it has nothing to do, or waits for what nobody here can
bring about. So what is announced is what is carried out, as far as all goes well meanwhile.

A gap is the time for which no send is acknowledged. A step that moves a mastership has one, of
about the length that the last ones had; a step whose gap lasts until a process is back has none
that could be told before.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Literal

import msgspec
from gantry_protocol.admin import QuorumView
from msgspec.structs import replace

from gantry_operator import names
from gantry_operator.builders.config import live_keys
from gantry_operator.plan import actions as act
from gantry_operator.plan.controller_steps import leader_pod
from gantry_operator.plan.live_settings import live_changes, live_text, live_word
from gantry_operator.plan.objects import key_of
from gantry_operator.plan.observed import (
    Body,
    BrokerObserved,
    ControllerObserved,
    FrontObserved,
    Observed,
)
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import known_groups
from gantry_operator.plan.supposed import after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gantry_operator.plan.members import ObservedGroup
    from gantry_operator.plan.supposed import Rolls

    Planner = Callable[[Observed, dt.datetime], list[act.Action]]

LIMIT = 500
"""Turns of the plan that are foreseen; a pod with all its masterships takes two."""
HAND_OVER_MS = 500
"""The longest gap of a planned move that this version allows itself (docs/performance.md)."""
_BEYOND = (
    act.DrainGroup,
    act.RetireGroup,
    act.ForgetGroup,
    act.DeleteStatefulSet,
    act.RemoveFronts,
)
"""Actions after which people's consumers, or clients, say how it goes on."""
_KEPT_BACK = frozenset(
    {
        Reason.UNSAFE_SCALE_DOWN,
        Reason.UNSAFE_HIBERNATION,
        Reason.UNSAFE_FENCE,
        Reason.DRAIN_REFUSED,
        Reason.VOLUME_EXPANSION_REFUSED,
        Reason.SETTINGS_REFUSED,
    }
)
"""Steps that are wanted, and not under way."""
_RUNS: dict[type[Observed], tuple[str, str]] = {
    BrokerObserved: ("StatefulSet", names.BROKER),
    ControllerObserved: ("StatefulSet", names.CONTROLLER),
    FrontObserved: ("Deployment", names.FRONT),
}
"""The workload of a resource, and what its pods are."""
_TOLD = frozenset({"StatefulSet", "Deployment", "Service", "NetworkPolicy", "CronJob"})
Kind = Literal[
    "Apply",
    "Remove",
    "Declare",
    "Start",
    "Move",
    "Restart",
    "ScaleDown",
    "Fence",
    "Members",
    "Leave",
    "Grow",
    "Settings",
]


class MovedMastership(msgspec.Struct, frozen=True, rename="camel"):
    """A mastership that goes from one pod to another; empty for one that is not known."""

    group: str
    from_pod: str
    to_pod: str


class Step(msgspec.Struct, frozen=True, rename="camel"):
    """One step of a change.

    Attributes:
        disruptive: it takes a process away from clients, or moves a mastership; the operator does
            one of those at a time, and looks whether all is well in between.
        pods: those that are started, restarted or removed.
        gap_ms: for how long no send is acknowledged; None where that cannot be told before.
    """

    kind: Kind
    message: str
    disruptive: bool = False
    pods: tuple[str, ...] = ()
    moves: tuple[MovedMastership, ...] = ()
    gap_ms: int | None = 0


class Foresight(msgspec.Struct, frozen=True, rename="camel"):
    """A change, as far as it can be foreseen.

    Attributes:
        refused: the reason why nothing of it is done; empty if it is.
        waits: the reason of the wait at which it ends; empty if it ends as wished.
        message: what to do about either, for people.
    """

    steps: tuple[Step, ...]
    refused: str = ""
    waits: str = ""
    message: str = ""

    @property
    def disruptive(self) -> tuple[Step, ...]:
        """The steps that clients may notice."""
        return tuple(step for step in self.steps if step.disruptive)

    @property
    def growing(self) -> tuple[Step, ...]:
        """The steps that make a volume larger."""
        return tuple(step for step in self.steps if step.kind == "Grow")

    @property
    def gap_ms(self) -> int | None:
        """The longest gap of them; None where one cannot be told."""
        gaps = [step.gap_ms for step in self.steps]
        known = [gap for gap in gaps if gap is not None]
        return None if len(known) < len(gaps) else max(known, default=0)


def never(_manifest: Body, _live: Body) -> bool:
    """Of a StatefulSet that has its present template already: nothing more of it rolls."""
    return False


def foresee(
    seen: Observed,
    now: dt.datetime,
    planner: Planner,
    *,
    gap_ms: int = HAND_OVER_MS,
    rolls: Rolls = never,
    later: bool = False,
) -> Foresight:
    """The course of what is wished now.

    Args:
        seen: the world.
        now: the time; each turn is supposed to take a second.
        planner: that of the operator.
        gap_ms: of a mastership that moves, by the last ones.
        rolls: see there.
        later: also what time alone brings, a move to a zone that waits: no part of a change.
    """
    world: Observed = replace(seen, refusals=())
    if isinstance(world, BrokerObserved):
        world = replace(world, move_turn=True)
    steps: list[Step] = []
    passed_s = 0
    for turn in range(LIMIT):
        actions = planner(world, now + dt.timedelta(seconds=turn + passed_s))
        status = next(
            (action.status for action in actions if isinstance(action, act.WriteStatus)),
            world.live_status,
        )
        refused = _condition(status, "Accepted")
        if refused is not None and refused["status"] == "False":
            return Foresight(tuple(steps), refused=refused["reason"], message=refused["message"])
        following: Observed = world
        for action in actions:
            if isinstance(action, _BEYOND):
                steps.append(Step("Leave", _leaves(action, status)))
                return _ended(steps, status)
            before = following
            following = after(following, action, rolls)
            steps += _described(before, following, action, gap_ms)
        if following == world:
            wait_s = _wait_s(status) if later and not passed_s else 0
            if not wait_s:
                return _ended(steps, status)
            passed_s = wait_s
        world = following
    return Foresight(
        tuple(steps), waits="CutOff", message=f"More than {LIMIT} turns; the rest is not shown."
    )


def _wait_s(status: Body | None) -> int:
    """The seconds after which a mastership moves if nothing else happens; 0 for none that does."""
    told = (status or {}).get("preferredMaster") or {}
    return int(told["waitSeconds"]) + 1 if told.get("state") == "Waiting" else 0


def _condition(status: Body | None, name: str) -> Body | None:
    conditions = (status or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition["type"] == name), None)


def _ended(steps: list[Step], status: Body | None) -> Foresight:
    """The end: all is as wished, or a step waits, or something else is amiss."""
    ready, progressing = _condition(status, "Ready"), _condition(status, "Progressing")
    if ready is None or ready["status"] == "True":
        return Foresight(tuple(steps))
    waits = ready
    if progressing is not None and (
        progressing["status"] == "True" or progressing["reason"] in _KEPT_BACK
    ):
        waits = progressing
    return Foresight(tuple(steps), waits=waits["reason"], message=waits["message"])


def _leaves(action: act.Action, status: Body | None) -> str:
    progressing = _condition(status, "Progressing")
    told = progressing["message"] if progressing is not None else ""
    return told or f"{type(action).__name__}."


def _described(
    before: Observed, following: Observed, action: act.Action, gap_ms: int
) -> Iterator[Step]:
    """The steps that an action is, for people; none for bookkeeping."""
    match action:
        case act.ApplyObject():
            yield from _of_apply(before, following, action)
        case act.GrowClaim(name=name, size=size):
            yield Step("Grow", f"Make {name} larger, {size}. Sends go on.")
        case act.DeleteObject():
            yield Step("Remove", f"Delete {action.kind} {action.name}.")
        case act.Declare():
            yield Step("Declare", _of_declaration(action))
        case act.DeclareFronts():
            yield Step("Declare", f"Lead clients to {action.declaration.address}.")
        case act.DeletePod():
            yield _of_restart(before, following, action, gap_ms)
        case act.ChangeMembers():
            yield Step("Members", _of_members(action))
        case act.Elect() | act.ElectEach():
            moves = tuple(_moves(before, following))
            text = ", ".join(
                f"the mastership{move.group and f' of {move.group}'} from "
                f"{move.from_pod or '?'} to {move.to_pod or '?'}"
                for move in moves
            )
            yield Step("Move", f"Move {text}.", True, moves=moves, gap_ms=gap_ms)
        case act.FenceMember() | act.UnfenceMember() | act.ForgetMember() | act.AdoptCopies():
            yield _of_member(before, action)
        case act.ScaleDown():
            left = {pod.name for pod in before.pods} - {pod.name for pod in following.pods}
            pods = tuple(sorted(left))
            if not following.pods:
                text = f"Stop {', '.join(pods)}. Nobody is served until the group wakes."
                yield Step("ScaleDown", text, True, pods=pods, gap_ms=None)
                return
            yield Step("ScaleDown", f"Remove {', '.join(pods)}.", True, pods=pods)


def _of_declaration(action: act.Declare) -> str:
    """What the controllers are told of a group."""
    of = f" of {action.group}" if action.group else ""
    wish = action.declaration
    text = (
        f"Tell the controllers{of}: {wish.replicas} replicas, at least "
        f"{wish.min_in_sync_replicas} in sync."
    )
    if wish.listeners:
        text += f" Give clients addresses of listener {', '.join(sorted(wish.listeners))}."
    if wish.preferred:
        text += f" Prefer a master in zone {', then '.join(one.zone for one in wish.preferred)}."
    return text


def _of_member(
    before: Observed,
    action: act.FenceMember | act.UnfenceMember | act.ForgetMember | act.AdoptCopies,
) -> Step:
    """A member is fenced, let in again, or struck from the record; or all begin from a tier."""
    if isinstance(action, act.AdoptCopies):
        return Step("Members", f"Elect one of {len(action.broker_ids)} copies of the tier.")
    group = next((one for one in _groups(before) if one.shard == action.group), None)
    members = group.view.members if group is not None else []
    member = next((one for one in members if one.broker_id == action.broker_id), None)
    pod = group.pod_of(member) if group is not None and member is not None else None
    who = f"{pod.name if pod else f'broker {action.broker_id}'}{group.named if group else ''}"
    if isinstance(action, act.ForgetMember):
        return Step("Members", f"Strike {who} from the record. Sends go on.")
    if isinstance(action, act.UnfenceMember):
        return Step("Fence", f"Let {who} in again; it catches up. Sends go on.")
    pods = (pod.name,) if pod else ()
    text = f"Fence {who}: it serves nobody and is never elected. Sends go on."
    return Step("Fence", text, True, pods)


def _of_apply(before: Observed, following: Observed, action: act.ApplyObject) -> Iterator[Step]:
    kind, name = key_of(action.manifest)
    if kind == "ConfigMap":
        yield from _of_settings(before, following, name)
    if kind not in _TOLD and action.exists:
        return
    verb = "Change" if action.exists else "Create"
    yield Step("Apply", f"{verb} {kind} {name}.")
    started = tuple(
        sorted({pod.name for pod in following.pods} - {pod.name for pod in before.pods})
    )
    if started and kind == "StatefulSet":
        yield Step("Start", f"Start {', '.join(started)}.", pods=started)
    elif kind == "Deployment" and action.exists:
        yield Step("Restart", "Replace the fronts one by one; a new one is Ready before each.")


def _of_settings(before: Observed, following: Observed, name: str) -> Iterator[Step]:
    """The settings that running processes apply, where they do."""
    kind, component = _RUNS[type(before)]
    live = live_keys(live_word(before.objects.get((kind, name))), component)
    if not before.pods:
        return
    changed = live_changes(
        live_text(before.objects, name), live_text(following.objects, name), live
    )
    if changed:
        yield Step(
            "Settings",
            f"Change settings {', '.join(changed)}: applied while running, no pod restarts.",
        )


def _of_members(action: act.ChangeMembers) -> str:
    """A change of the quorum, for people; nothing of it keeps a message waiting."""
    text = {
        "add": f"Fill controller {action.number}, which does not vote yet.",
        "promote": f"Let controller {action.number} vote.",
        "remove": f"Take controller {action.number} out of the quorum.",
        "transfer": f"Let controller {action.number} lead the quorum.",
    }[action.change]
    return f"{text} Sends go on."


def _of_restart(before: Observed, following: Observed, action: act.DeletePod, gap_ms: int) -> Step:
    name = action.name
    if isinstance(before, ControllerObserved):
        leads = isinstance(before.quorum, QuorumView) and leader_pod(before.quorum, before.pods)
        if leads and leads.name == name:
            text = f"Restart {name}, the leader; another controller leads. Sends go on."
            return Step("Restart", text, True, (name,))
        return Step("Restart", f"Restart {name}. Sends go on.", True, (name,))
    moves = tuple(_moves(before, following))
    if action.only_if_dead:
        text = f"Restart {name}, whose container does not run."
        return Step("Restart", text, True, (name,), moves)
    short = next((group for group in _groups(before) if _falls_short(group, name)), None)
    if short is not None:
        view = short.view
        text = (
            f"Restart {name}. Sends{short.named} wait until it is back: in sync without it "
            f"{len(_staying(short, name))}, needed {view.min_in_sync_replicas}."
        )
        return Step("Restart", text, True, (name,), moves, gap_ms=None)
    if moves:
        text = f"Restart {name}, the master; another takes over."
        return Step("Restart", text, True, (name,), moves, gap_ms)
    return Step("Restart", f"Restart {name}. Sends go on.", True, (name,))


def _groups(seen: Observed) -> tuple[ObservedGroup, ...]:
    return known_groups(seen) if isinstance(seen, BrokerObserved) else ()


def _staying(group: ObservedGroup, pod: str) -> set[int]:
    leaving = next((member for member in group.view.members if _lives_in(group, member, pod)), None)
    return set(group.in_sync()) - ({leaving.broker_id} if leaving is not None else set())


def _falls_short(group: ObservedGroup, pod: str) -> bool:
    """Whether too few members would be in sync without that of a pod, and enough are with it."""
    minimum = group.view.min_in_sync_replicas or 1
    staying = len(_staying(group, pod))
    return staying < minimum <= len(group.in_sync())


def _lives_in(group: ObservedGroup, member: object, pod: str) -> bool:
    found = next((one for one in group.pods if one.name == pod), None)
    return found is not None and group.member_in(found) == member


def _moves(before: Observed, following: Observed) -> Iterator[MovedMastership]:
    """The masterships that went elsewhere."""
    now = {group.shard: group for group in _groups(following)}
    for old in _groups(before):
        new = now.get(old.shard)
        if new is None or new.view.master_broker_id == old.view.master_broker_id:
            continue
        yield MovedMastership(old.shard, _home(old), _home(new))


def _home(group: ObservedGroup) -> str:
    master = group.master()
    pod = None if master is None else group.pod_of(master)
    return "" if pod is None else pod.name
