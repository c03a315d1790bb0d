"""A change that would restart pods, held back until a person approves it, or until its turn.

StatefulSets are OnDelete, so a pod that dies is made again from the template that the StatefulSet
has. A template that was written before it is approved would spread by accidents. So it is not
written, and neither are the settings that go with it: whatever dies meanwhile comes back as it was.
Everything else of the wish is carried out, the number of replicas by an apply of that field alone.

The id of a change is a hash of both templates, the one that is there and the one that is wished. So
an approval is about exactly this change, whoever computes it, before or after it is applied: any
other wish, a later one or the way back, has another id.

Rule protected: nothing goes that was not announced. A change whose id the status does not show yet
waits for that, also if it is approved.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from gantry_operator import names
from gantry_operator.builders.meta import digest
from gantry_operator.models.operations import CHANGE_ID_LENGTH, PendingChangeStatus
from gantry_operator.plan.actions import ApplyObject
from gantry_operator.plan.foresight import foresee
from gantry_operator.plan.live_settings import applies_live
from gantry_operator.plan.objects import container, drifted, ensure, is_owned, key_of
from gantry_operator.plan.observed import hosted_shards
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.builders import Manifest
    from gantry_operator.models import BrokerGroup
    from gantry_operator.plan.foresight import Planner
    from gantry_operator.plan.observed import Body, BrokerObserved

_TOLD_MAX = 5
_SIZE = ("replicas", "persistentVolumeClaimRetentionPolicy")
_SETTING = re.compile(r"^([a-z0-9_]+) = ", re.MULTILINE)


class HeldChange(msgspec.Struct, frozen=True):
    """A change of the pod template that is not carried out now.

    Attributes:
        id: see the module.
        approved: nobody has to approve it any more; it waits for its announcement or its turn.
        in_line: it waits for its turn.
        given: an approval that is there and is not for this change; empty for none.
        image: the image that pods would get.
        what: the parts that differ, for people.
    """

    id: str
    approved: bool
    in_line: bool
    given: str
    image: str
    what: str

    @property
    def reason(self) -> Reason:
        """Of the condition Progressing."""
        if not self.approved:
            return Reason.WAITING_FOR_APPROVAL
        return Reason.WAITING_FOR_TURN if self.in_line else Reason.APPLYING

    def describe(self, pending: PendingChangeStatus) -> str:
        """For people: what waits, what it would do, and how to let it go."""
        if self.approved:
            goes = "goes when it is its turn" if self.in_line else "begins"
            return f"Change {self.id} {goes}: {told(pending)}."
        other = f" spec.update.approved is {self.given}, another change." if self.given else ""
        return (
            f"Waiting for approval of {self.id}: {told(pending)}.{other} Set spec.update.approved "
            f"to {self.id}, or take the change back."
        )


def told(pending: PendingChangeStatus) -> str:
    """A change and its effects, for people; of those that could not be foreseen nothing."""
    counts = ((pending.restarts, "restart"), (pending.hand_overs, "hand-over"))
    effects = [_count(number, noun) for number, noun in counts if number]
    return "; ".join(part for part in (pending.what, ", ".join(effects)) if part)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def held_change(
    seen: BrokerObserved, group: BrokerGroup, wished: list[Manifest]
) -> HeldChange | None:
    """The change that waits; None if nothing does.

    Args:
        seen: the world.
        group: the resource.
        wished: its objects with as many replicas as the live StatefulSet has.
    """
    statefulset = wished[-1]
    live = seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))
    supervised, turn = group.spec.update.is_supervised, seen.roll_turn
    if live is None or not (supervised or turn is not None):
        return None
    change = change_id(statefulset, live)
    if not change:
        return None
    given = group.spec.update.approved or ""
    shown = seen.previous.pending_change if seen.previous else None
    is_shown = shown is not None and shown.id == change
    in_line = turn is not None and not turn.given
    in_line |= supervised and seen.image_wait is not None
    may_go = given == change or not supervised
    if may_go and is_shown and not in_line:
        return None
    return HeldChange(
        id=change,
        approved=may_go,
        in_line=in_line,
        given=given if given != change else "",
        image=_image(statefulset),
        what=_what(seen, wished, live),
    )


def change_id(wished: Manifest, live: Body) -> str:
    """The id of the change from a live StatefulSet to a wished one; empty if no pod restarts.

    A StatefulSet that an older operator wrote carries no hash of its template. It counts as having
    the wished one only if all of it is what that operator would have written.
    """
    before, after = _hash(live), _hash(wished)
    if not before:
        before = (live["metadata"].get("annotations") or {}).get(names.ANNOTATION_APPLIED, "")
        after = _unmarked(wished)
    return "" if before == after else digest([before, _hash(wished)])[:CHANGE_ID_LENGTH]


def _hash(statefulset: Body) -> str:
    annotations = statefulset["metadata"].get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_TEMPLATE, ""))


def _unmarked(wished: Manifest) -> str:
    """The hash of all of a StatefulSet as it was before templates had hashes of their own."""
    own = (names.ANNOTATION_APPLIED, names.ANNOTATION_TEMPLATE)
    annotations = wished["metadata"]["annotations"]
    kept = {key: text for key, text in annotations.items() if key not in own}
    meta = {key: value for key, value in wished["metadata"].items() if key != "annotations"}
    return digest(wished | {"metadata": meta | ({"annotations": kept} if kept else {})})


def _image(statefulset: Body) -> str:
    found = container(statefulset, names.BROKER)
    return str(found.get("image", "")) if found is not None else ""


def running_image(seen: BrokerObserved) -> str | None:
    """The image that a new pod gets now."""
    live = seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))
    return None if live is None else _image(live) or None


def _what(seen: BrokerObserved, wished: list[Manifest], live: Body) -> str:
    """The parts of pods that differ, for people."""
    parts = []
    before, after = _image(live), _image(wished[-1])
    if before != after:
        parts.append(f"image {before} to {after}")
    settings = _settings(seen, wished, live)
    if settings:
        parts.append(settings)
    changed = sorted(
        name
        for name in _env(live).keys() | _env(wished[-1]).keys()
        if _env(live).get(name) != _env(wished[-1]).get(name)
    )
    if changed:
        parts.append(f"environment {_listed(changed)}")
    return ", ".join(parts) or "other parts of the pod template"


def _settings(seen: BrokerObserved, wished: list[Manifest], live: Body) -> str:
    if not _is_config_new(wished[-1], live):
        return ""
    name = names.broker_statefulset(seen.meta.name)
    present = _lines(seen.objects.get(("ConfigMap", name)))
    new = next((_lines(one) for one in wished if one["kind"] == "ConfigMap"), set[str]())
    changed = {found[1] for line in present ^ new if (found := _SETTING.match(line))}
    return f"settings {_listed(sorted(changed))}" if changed else "settings"


def _listed(words: list[str]) -> str:
    more = f" and {len(words) - _TOLD_MAX} more" if len(words) > _TOLD_MAX else ""
    return f"{', '.join(words[:_TOLD_MAX])}{more}"


def _lines(config_map: Body | None) -> set[str]:
    return set(((config_map or {}).get("data") or {}).get(names.CONFIG_KEY, "").splitlines())


def _env(statefulset: Body) -> dict[str, object]:
    found = container(statefulset, names.BROKER) or {}
    return {entry["name"]: entry["value"] for entry in found.get("env") or () if entry.get("value")}


def _is_config_new(wished: Manifest, live: Body) -> bool:
    return _config_hash(wished) != _config_hash(live)


def _config_hash(statefulset: Body) -> str:
    meta = (statefulset["spec"].get("template") or {}).get("metadata") or {}
    return str((meta.get("annotations") or {}).get(names.ANNOTATION_CONFIG, ""))


def ensure_meanwhile(seen: BrokerObserved, wished: list[Manifest]) -> list[ApplyObject]:
    """Rule: while a pod template is held back, all that restarts no pod is as it is wished.

    The settings are held if they belong to the template: a process that starts again in its old pod
    reads them, too.
    """
    statefulset = wished[-1]
    live = seen.objects[key_of(statefulset)]
    hold_config = _is_config_new(statefulset, live) or (
        applies_live(statefulset) and not applies_live(live)
    )
    free = [one for one in wished[:-1] if not (hold_config and one["kind"] == "ConfigMap")]
    actions = ensure(free, seen.objects)
    part = size_of(statefulset)
    if drifted(part["spec"], live["spec"]) or not is_owned(statefulset, live):
        manager = names.REPLICAS_FIELD_MANAGER
        actions.append(ApplyObject(manifest=part, exists=True, manager=manager))
    return actions


def size_of(statefulset: Manifest) -> Manifest:
    """The part of a StatefulSet that says how many pods there are, and whose it is.

    It is applied under a manager of its own: under ours, what it does not name would go.
    """
    meta, spec = statefulset["metadata"], statefulset["spec"]
    return {
        "apiVersion": statefulset["apiVersion"],
        "kind": statefulset["kind"],
        "metadata": {key: meta[key] for key in ("name", "namespace", "ownerReferences")},
        "spec": {key: spec[key] for key in _SIZE if key in spec},
    }


def hosted_meanwhile(seen: BrokerObserved, group: BrokerGroup) -> BrokerObserved:
    """The world while a change is held back: no more shards are wished than pods host."""
    live = seen.objects.get(("StatefulSet", names.broker_statefulset(seen.meta.name)))
    hosted, wished = hosted_shards(live), group.spec.shards
    if hosted is None or wished is None or wished <= hosted:
        return seen
    spec = group.spec.model_copy(update={"shards": hosted})
    return replace(seen, group=group.model_copy(update={"spec": spec}), shards=seen.shards[:hosted])


def pending_status(
    seen: BrokerObserved,
    held: HeldChange,
    now: dt.datetime,
    planner: Planner | None,
    *,
    gap_ms: int,
) -> PendingChangeStatus:
    """The change that waits, as people read it; what it would do is foreseen by `planner`, once.

    What is foreseen in a bad moment, in which a step would wait, is foreseen again.
    """
    old = seen.previous.pending_change if seen.previous else None
    if old is not None and old.id == held.id and old.restarts:
        return old
    bare = PendingChangeStatus(id=held.id, what=held.what, image=held.image)
    if planner is None:
        return bare
    foreseen = foresee(approved(seen, held.id), now, planner, gap_ms=gap_ms, rolls=rolls)
    if foreseen.refused or foreseen.waits:
        return bare
    steps = foreseen.disruptive
    update_of = {
        "restarts": sum(len(step.pods) for step in steps if step.kind == "Restart"),
        "hand_overs": sum(len(step.moves) for step in steps),
        "gap_ms": foreseen.gap_ms,
    }
    return bare.model_copy(update=update_of)


def approved(seen: BrokerObserved, change: str) -> BrokerObserved:
    """The same world in which a person has approved a change, and it is its turn."""
    assert seen.group is not None, "of an accepted resource"
    update = seen.group.spec.update.model_copy(update={"approved": change})
    spec = seen.group.spec.model_copy(update={"update": update})
    group = seen.group.model_copy(update={"spec": spec})
    return replace(seen, group=group, image_wait=None, roll_turn=None)


def rolls(wished: Body, live: Body) -> bool:
    """Whether a StatefulSet that is applied has another template than the live one."""
    return "template" in wished["spec"] and bool(change_id(wished, live))
