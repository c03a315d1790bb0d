"""The status of a FrontGroup: what is observed, in words that do not change without a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.models import Condition, ConditionStatus, FrontGroupStatus, ServedGroup
from gantry_operator.plan.additions import report_additions
from gantry_operator.plan.conditions import Conditions, timestamp
from gantry_operator.plan.crashes import crash_loop, crash_words
from gantry_operator.plan.deletion import FOR_CONTROLLERS, Obstacle, foreign_finalizers
from gantry_operator.plan.front_steps import (
    SERVES_ON_S,
    declared,
    rolled_out,
    wished_declaration,
)
from gantry_operator.plan.headline import headline
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    import datetime as dt

    from gantry_protocol.admin import FrontsView

    from gantry_operator.plan.acceptance import Acceptance
    from gantry_operator.plan.observed import Body, FrontObserved

MAX_NAMED = 10


def front_status(
    seen: FrontObserved, accepted: Acceptance, now: dt.datetime, *, applying: bool
) -> FrontGroupStatus:
    """The status that follows from an observation; `applying`: the Deployment is written now."""
    old = seen.previous or FrontGroupStatus(observed_generation=0)
    ready = sum(pod.ready for pod in seen.pods)
    conditions = _conditions(seen, accepted, now, applying=applying)
    deleting = seen.meta.deletion_timestamp is not None
    extents: dict[str, str] = {Reason.STARTING: f"{ready}/{_wished(seen)}"}
    if seen.deployment is not None:
        extents[Reason.REPLACING_FRONTS] = f"{_updated(seen.deployment)}/{_wished(seen)}"
    status = old.model_copy(
        update={
            "observed_generation": seen.meta.generation,
            "replicas": len(seen.pods),
            "ready_replicas": ready,
            "ready": f"{ready}/{_wished(seen)}",
            "selector": names.selector_text(names.FRONT, seen.meta.name),
            "summary": headline(
                conditions,
                extents=extents,
                ending=deletion_waits_for(seen).short if deleting else "",
                crash=crash_words(seen.pods, now),
            ),
            "conditions": conditions,
        }
    )
    if isinstance(seen.view, Unreachable):
        return status
    return status.model_copy(update=_ways(seen, seen.view, old, now))


def _wished(seen: FrontObserved) -> int:
    """How many fronts there are to be: an autoscaler says it on the Deployment."""
    if seen.group is None:
        return len(seen.pods)
    if not seen.group.spec.autoscaling.enabled:
        return seen.group.spec.replicas
    found = (seen.deployment or {}).get("spec") or {}
    return int(found.get("replicas", seen.group.spec.autoscaling.min_replicas))


def _updated(deployment: Body) -> int:
    return int((deployment.get("status") or {}).get("updatedReplicas") or 0)


def _ways(
    seen: FrontObserved, view: FrontsView, old: FrontGroupStatus, now: dt.datetime
) -> dict[str, object]:
    """Where clients are led; in a deletion, the address that they were given stays."""
    found, deleting = declared(seen), seen.meta.deletion_timestamp is not None
    groups = (
        ()
        if found is None
        else tuple(
            ServedGroup(name=group.group, port=found.first_port + group.index)
            for group in sorted(view.groups, key=lambda group: group.group)
            if group.index < found.ports
        )
    )
    address = f"{_host(found.address)}:{found.first_port}" if found is not None else None
    withdrawn = deleting and found is None and old.address is not None
    return {
        "address": old.address if withdrawn else address,
        "groups": groups,
        "served": f"{len(groups)}/{len(view.groups)}",
        "withdrawn_at": (old.withdrawn_at or timestamp(now)) if withdrawn else None,
    }


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address and not address.startswith("[") else address


def _conditions(
    seen: FrontObserved, accepted: Acceptance, now: dt.datetime, *, applying: bool
) -> tuple[Condition, ...]:
    old = seen.previous.conditions if seen.previous else ()
    conditions = Conditions(old, seen.meta.generation, now)
    conditions.set(
        "Accepted", "True" if accepted.accepted else "False", accepted.reason, accepted.message
    )
    if isinstance(seen.view, Unreachable):
        for name in ("Available", "GroupsServed"):
            conditions.set(name, "Unknown", Reason.CONTROLLER_UNREACHABLE, seen.view.reason)
    else:
        conditions.set("Available", *_available(seen, seen.view))
        conditions.set("GroupsServed", *_groups_served(seen, seen.view))
    _progressing(conditions, seen, crash_loop(seen.pods, now), applying=applying)
    report_additions(conditions, seen.objects)
    if seen.group is not None and seen.group.spec.paused:
        conditions.set("Paused", "True", Reason.PAUSED_BY_SPEC, "spec.paused is true.")
    else:
        conditions.set("Paused", "False", Reason.ACTIVE, "spec.paused is not set.")
    conditions.sum_up()
    return conditions.result()


Said = tuple[ConditionStatus, Reason, str]


def _available(seen: FrontObserved, view: FrontsView) -> Said:
    """Whether clients come in through the fronts."""
    if not view.groups:
        return "False", Reason.NO_BROKER_GROUP, _no_groups(seen)
    ready = sum(pod.ready for pod in seen.pods)
    if not ready:
        text = "No front is Ready; clients are led to them once one is."
        if declared(seen) is not None:
            text = "No front is Ready, and clients are led there; for 30 s, then to the brokers."
        return "False", Reason.NO_FRONT_READY, text
    found = declared(seen)
    if seen.group is not None and wished_declaration(seen, seen.group) is None:
        text = f"Service {names.front_deployment(seen.meta.name)} has no address yet."
        return "False", Reason.WAITING_FOR_ADDRESS, text
    if found is None:
        text = "The controllers lead clients to the brokers' own addresses."
        return "False", Reason.FRONTS_NOT_DECLARED, text
    text = f"Clients are led to {_host(found.address)}, port {found.first_port} and the next ones."
    return "True", Reason.FRONTS_DECLARED, text


def _groups_served(seen: FrontObserved, view: FrontsView) -> Said:
    """Whether clients reach each broker group of the cluster through the fronts."""
    known = {group.group for group in view.groups}
    waiting = [name for name in seen.broker_groups if name not in known]
    if waiting:
        text = f"The controllers have given no port to {_listed(waiting)} yet."
        return "False", Reason.WAITING_FOR_GROUPS, text
    if not known:
        return "False", Reason.NO_BROKER_GROUP, _no_groups(seen)
    ports = seen.group.spec.ports if seen.group is not None else 0
    beyond = [group for group in view.groups if group.index >= ports]
    if seen.group is not None and beyond:
        highest = max(group.index for group in beyond)
        text = (
            f"{_listed(sorted(group.group for group in beyond))} are reached at their own "
            f"addresses, since there are {ports} ports: raise spec.ports to {highest + 1}."
        )
        return "False", Reason.TOO_FEW_PORTS, text
    found = declared(seen)
    if found is None or any(group.index >= found.ports for group in view.groups):
        text = "Clients are led there once every front serves them."
        return "False", Reason.FRONTS_NOT_DECLARED, text
    return "True", Reason.ALL_GROUPS_SERVED, f"All {len(known)} broker groups are served."


def _no_groups(seen: FrontObserved) -> str:
    return (
        f"There is no broker group in cluster {seen.cluster} yet, so nobody is served: create a "
        f"BrokerGroup whose controllerRef names {seen.cluster}."
    )


def _listed(found: list[str]) -> str:
    more = len(found) - MAX_NAMED
    return ", ".join(found[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")


def _progressing(
    conditions: Conditions, seen: FrontObserved, crashes: str, *, applying: bool
) -> None:
    """Progressing: pods start, or are being replaced. It rests on pods only, so never Unknown."""
    wished, ready = _wished(seen), sum(pod.ready for pod in seen.pods)
    if seen.meta.deletion_timestamp is not None:
        conditions.set("Progressing", "True", Reason.DELETING, deletion_waits_for(seen).text)
    elif seen.group is None:
        conditions.keep("Progressing")
    elif crashes:
        conditions.set("Progressing", "True", Reason.POD_CRASHING, crashes)
    elif applying:
        text = "The Deployment takes the change in."
        conditions.set("Progressing", "True", Reason.APPLYING, text)
    elif seen.deployment is not None and not rolled_out(seen.deployment):
        updated = _updated(seen.deployment)
        text = f"{updated} of {wished} fronts are of the present template, {ready} are Ready."
        conditions.set("Progressing", "True", Reason.REPLACING_FRONTS, text)
    elif ready < wished:
        text = f"{ready} of {wished} fronts are Ready."
        conditions.set("Progressing", "True", Reason.STARTING, text)
    elif seen.image_wait is not None:
        text = seen.image_wait.describe(seen.image)
        conditions.set("Progressing", "False", Reason.WAITING_FOR_TURN, text)
    else:
        conditions.set("Progressing", "False", Reason.SETTLED, "Nothing is under way.")


def deletion_waits_for(seen: FrontObserved) -> Obstacle:
    """The subject of a deletion, in the order in which it goes on."""
    if names.FRONTS_FINALIZER not in seen.meta.finalizers:
        return foreign_finalizers(seen.meta)
    if isinstance(seen.view, Unreachable):
        text = f"Waiting for the controllers, to lead clients to the brokers: {seen.view.reason}"
        return Obstacle(FOR_CONTROLLERS, text)
    if declared(seen) is not None:
        return Obstacle("leads clients away", "The controllers lead clients to the brokers.")
    return Obstacle(
        "serves on for a while",
        f"Clients are led to the brokers; the fronts serve on for {SERVES_ON_S:.0f} s, until all "
        "of them have heard of it.",
    )
