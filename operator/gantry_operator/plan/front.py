"""The plan for a FrontGroup: which rules apply, in which order.

A pure function of the observation and the time, like the plan for a BrokerGroup. None of its
actions is disruptive: fronts hold nothing, and the Deployment replaces them so that there is never
one less than wished.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gantry_operator import names
from gantry_operator.builders import Manifest, front_objects
from gantry_operator.builders.config import NEWEST_LIVE_OF_FRONTS
from gantry_operator.builders.front import BY_AUTOSCALER
from gantry_operator.plan.acceptance import accept_front_group
from gantry_operator.plan.actions import Action, ApplyObject, CheckAgain, SetFinalizer, WriteStatus
from gantry_operator.plan.conditions import find
from gantry_operator.plan.events import front_events
from gantry_operator.plan.front_status import front_status
from gantry_operator.plan.front_steps import (
    declare_fronts,
    delete_front_group,
    keep_fronts_finalizer,
)
from gantry_operator.plan.live_settings import live_now, look_at
from gantry_operator.plan.objects import ensure, surplus
from gantry_operator.plan.quorum_size import addressed_size
from gantry_operator.plan.turns import with_check

if TYPE_CHECKING:
    import datetime as dt

    from gantry_operator.models import FrontGroup, FrontGroupStatus
    from gantry_operator.plan.observed import Body, FrontObserved

UNSETTLED_CHECK_S = 5.0
_SETTLED = (
    ("Accepted", "True"),
    ("Available", "True"),
    ("GroupsServed", "True"),
    ("Progressing", "False"),
)


def plan_front_group(seen: FrontObserved, now: dt.datetime) -> list[Action]:
    """All that is to be done now, in order."""
    accepted = accept_front_group(seen)
    if seen.meta.deletion_timestamp is not None:
        steps = delete_front_group(seen, now)
        if any(isinstance(action, SetFinalizer) for action in steps):
            return steps  # the last one; a status before it would be another version
        return [*_write(seen, front_status(seen, accepted, now, applying=False)), *steps]
    actions: list[Action] = []
    applies: list[ApplyObject] = []
    if accepted.usable and seen.group is not None and not seen.group.spec.paused:
        wished = _objects(seen, seen.group)
        applies = [_keeping_replicas(seen, action) for action in ensure(wished, seen.objects)]
        actions += keep_fronts_finalizer(seen)
        actions += applies
        actions += [look for one in applies for look in look_at(one, seen.pods)]
        actions += surplus(seen.meta.uid, wished, seen.objects)
        actions += declare_fronts(seen, seen.group, now)
    applying = any(action.manifest["kind"] == "Deployment" for action in applies)
    status = front_status(seen, accepted, now, applying=applying)
    actions += _write(seen, status)
    actions += front_events(seen.previous, status)
    return with_check(seen.image_wait, actions + _check_again(status))


def _objects(seen: FrontObserved, group: FrontGroup) -> list[Manifest]:
    assert seen.controllers is not None, "an accepted resource has controllers"
    known = addressed_size(seen.cluster, seen.meta.namespace, seen.deployment)
    image = group.spec.image or seen.image
    live = live_now(seen.deployment, names.FRONT, image, NEWEST_LIVE_OF_FRONTS)
    return front_objects(group, seen.controllers, image=seen.image, addressed=known, live=live)


def _keeping_replicas(seen: FrontObserved, action: ApplyObject) -> ApplyObject:
    """Rule: the number of fronts stays what it is when an autoscaler takes over.

    An apply that names replicas no more takes them away, and the API server would fall back to one.
    So somebody else owns them first.
    """
    meta = action.manifest["metadata"]
    live = seen.objects.get(("Deployment", meta["name"]))
    owner = meta["annotations"].get(names.ANNOTATION_REPLICAS)
    if action.manifest["kind"] != "Deployment" or owner != BY_AUTOSCALER or live is None:
        return action
    annotations = live["metadata"].get("annotations") or {}
    if annotations.get(names.ANNOTATION_REPLICAS) == BY_AUTOSCALER:
        return action
    kept: Body = {
        "apiVersion": action.manifest["apiVersion"],
        "kind": "Deployment",
        "metadata": {key: meta[key] for key in ("name", "namespace")},
        "spec": {"replicas": live["spec"].get("replicas", 1)},
    }
    return msgspec.structs.replace(action, kept=kept)


def _write(seen: FrontObserved, status: FrontGroupStatus) -> list[WriteStatus]:
    body = status.to_object()
    return [] if body == seen.live_status else [WriteStatus(status=body)]


def _check_again(status: FrontGroupStatus) -> list[Action]:
    settled = all(
        condition is not None and condition.status == wanted
        for name, wanted in _SETTLED
        for condition in [find(status.conditions, name)]
    )
    return [] if settled else [CheckAgain(after_s=UNSETTLED_CHECK_S)]
