"""The way of clients to the fronts: when the controllers lead them there, and when back.

The order is what matters. Clients are led to fronts once one of them is Ready, never before: they
would be led to nobody. And they are led back to the brokers before the pods go: clients read routes
anew every 30 s, so a front serves on for as long as somebody may still hold the old ones.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from gantry_protocol.admin import FrontsDeclaration
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator import names
from gantry_operator.builders.front import first_client_port
from gantry_operator.plan.actions import (
    Action,
    CheckAgain,
    DeclareFronts,
    RemoveFronts,
    SetFinalizer,
)
from gantry_operator.plan.conditions import find
from gantry_operator.plan.listeners import balancer
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.steady import finalizer_action

if TYPE_CHECKING:
    from gantry_operator.models import FrontGroup
    from gantry_operator.plan.observed import Body, FrontObserved

SERVES_ON_S = 35.0
"""How long fronts serve after clients are led back: these look at the routes every 30 s."""
NOBODY_S = 30.0
"""How long clients are led to fronts of which none is Ready."""
RETRY_S = 2.0


def declared(seen: FrontObserved) -> FrontsDeclaration | None:
    """The declaration that the controllers hold for this resource; None if there is none."""
    if isinstance(seen.view, Unreachable):
        return None
    for fronts in seen.view.fronts:
        if fronts.name == seen.meta.name:
            return FrontsDeclaration(
                address=fronts.address, first_port=fronts.first_port, ports=fronts.ports
            )
    return None


def client_address(seen: FrontObserved, group: FrontGroup) -> str | None:
    """The host that clients are given; None while the Service has none."""
    wish = group.spec.service
    if wish.advertised_address is not None:
        return wish.advertised_address
    service = seen.objects.get(("Service", names.front_deployment(seen.meta.name)), {})
    if wish.type == "LoadBalancer":
        return balancer(service)
    address = (service.get("spec") or {}).get("clusterIP")
    return address if address and address != "None" else None


def wished_declaration(seen: FrontObserved, group: FrontGroup) -> FrontsDeclaration | None:
    """The declaration that is to be made; None while the address is not known.

    Ports that were added count once every front listens on them.
    """
    address = client_address(seen, group)
    if address is None:
        return None
    ports, before = group.spec.ports, declared(seen)
    if before is not None and not rolled_out(seen.deployment):
        ports = min(ports, before.ports)
    return FrontsDeclaration(address=address, first_port=first_client_port(group), ports=ports)


def rolled_out(deployment: Body | None) -> bool:
    """Whether every pod of a Deployment is Ready and of the present template, by its status."""
    if deployment is None:
        return False
    meta, status = deployment["metadata"], deployment.get("status") or {}
    wished = deployment["spec"].get("replicas", 1)
    counts = (status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas"))
    return status.get("observedGeneration") == meta.get("generation") and set(counts) == {wished}


def declare_fronts(
    seen: FrontObserved, group: FrontGroup, now: dt.datetime
) -> list[DeclareFronts | RemoveFronts]:
    """Rule: clients are led to fronts exactly while there are some.

    Never before one is Ready, and never without the finalizer, or a deletion could leave clients
    with an address where nobody is. Fronts that are all gone for a while lead nobody: the brokers
    serve as well. A cluster without broker groups has no clients yet.
    """
    if isinstance(seen.view, Unreachable) or names.FRONTS_FINALIZER not in seen.meta.finalizers:
        return []
    before = declared(seen)
    if not any(pod.ready for pod in seen.pods):
        nobody = before is not None and _nobody_for(seen, now) >= NOBODY_S
        return [RemoveFronts()] if nobody else []
    wished = wished_declaration(seen, group)
    if wished is None or wished == before or not seen.view.groups:
        return []
    return [DeclareFronts(declaration=wished)]


def _nobody_for(seen: FrontObserved, now: dt.datetime) -> float:
    """Seconds for which the status has said that no front is Ready."""
    found = find(seen.previous.conditions, "Available") if seen.previous else None
    if found is None or found.reason != Reason.NO_FRONT_READY:
        return 0.0
    return (now - dt.datetime.fromisoformat(found.last_transition_time)).total_seconds()


def keep_fronts_finalizer(seen: FrontObserved) -> list[SetFinalizer]:
    """Rule: a resource that may lead clients somewhere has the finalizer first."""
    if names.FRONTS_FINALIZER in seen.meta.finalizers:
        return []
    return [finalizer_action(seen, present=True, finalizer=names.FRONTS_FINALIZER)]


def delete_front_group(seen: FrontObserved, now: dt.datetime) -> list[Action]:
    """Rule: clients are led back, and have had the time to hear of it, before the pods go.

    Garbage collection removes what the resource owns, as soon as the finalizer is off. A quorum
    that is gone leads nobody; one that does not answer is waited for.
    """
    if names.FRONTS_FINALIZER not in seen.meta.finalizers:
        return []
    if seen.controllers_exist:
        if isinstance(seen.view, Unreachable):
            return [CheckAgain(after_s=RETRY_S)]
        if declared(seen) is not None:
            return [RemoveFronts(), CheckAgain(after_s=RETRY_S)]
        left_s = serves_on_s(seen, now)
        if left_s > 0:
            return [CheckAgain(after_s=left_s)]
    return [finalizer_action(seen, present=False, finalizer=names.FRONTS_FINALIZER)]


def serves_on_s(seen: FrontObserved, now: dt.datetime) -> float:
    """Seconds for which clients that were led back may still hold the old routes."""
    before = seen.previous
    if before is None or before.address is None:
        return 0.0  # nobody was ever led here
    if before.withdrawn_at is None:
        return SERVES_ON_S
    since = dt.datetime.fromisoformat(before.withdrawn_at)
    return max(0.0, SERVES_ON_S - (now - since).total_seconds())
