"""Addresses of listeners: what clients from outside of the cluster are given.

They are read from the Services, and from the pods, which say on which node they are, and told to
the controllers together with the rest of what a group is to be. What cannot be seen at a moment
stays as it was: a pod that is being replaced will most likely be where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_protocol.admin import MAX_REPLICAS, AdvertisedMember, GroupView
from gantry_protocol.admin_client.outcomes import Unreachable
from gantry_protocol.hosts import join_address

from gantry_operator import names
from gantry_operator.models.listeners import ListenerStatus
from gantry_operator.plan.listener_tls import certificate_problem, secrets_of
from gantry_operator.plan.members import ObservedGroup
from gantry_operator.plan.reasons import Reason
from gantry_operator.plan.shards import known_groups, wished_groups

if TYPE_CHECKING:
    import datetime as dt

    from gantry_protocol.admin import MemberView

    from gantry_operator.models import BrokerGroup
    from gantry_operator.models.listeners import BrokerListener, ListenerWish
    from gantry_operator.plan.conditions import Conditions
    from gantry_operator.plan.observed import (
        Body,
        BrokerObserved,
        ControllerObserved,
        ObjectKey,
        PodView,
    )

_LAST_PORT = 65_535
Advertised = dict[str, list[AdvertisedMember]]


def advertised(seen: BrokerObserved, group: BrokerGroup) -> Advertised:
    """The addresses for the controllers; none without listeners, and before there are members.

    A member is named once both its pod and an address of it are known.
    """
    listeners = group.spec.clients.listeners
    if not listeners or not isinstance(seen.view, GroupView):
        return {}
    joined = ObservedGroup(seen.view, seen.pods, seen.shard)
    return {listener.name: _members(seen, group, joined, listener) for listener in listeners}


def _members(
    seen: BrokerObserved, group: BrokerGroup, joined: ObservedGroup, listener: BrokerListener
) -> list[AdvertisedMember]:
    known = {item.broker_id: item for item in joined.view.listeners.get(listener.name, [])}
    found = []
    for member in joined.view.members:
        pod, before = joined.pod_of(member), known.get(member.broker_id)
        item = before if pod is None else _member(seen, group, listener, member, pod, before)
        if item is not None:
            found.append(item)
    found.sort(key=lambda item: item.broker_id)
    return found[-MAX_REPLICAS:]


def _member(
    seen: BrokerObserved,
    group: BrokerGroup,
    listener: BrokerListener,
    member: MemberView,
    pod: PodView,
    before: AdvertisedMember | None,
) -> AdvertisedMember | None:
    name, ordinal = seen.meta.name, pod.ordinal
    service = names.listener_service(name, listener.name, ordinal)
    override = next((item for item in listener.replicas if item.ordinal == ordinal), None)
    own = _address(
        seen.objects,
        service,
        listener,
        pod.host_ip,
        host=override.host if override else None,
        port=override.port if override else None,
        shard=seen.shard,
    )
    route = own
    if group.spec.clients.route == "Group":
        of_all = _address(
            seen.objects,
            names.listener_service(name, listener.name),
            listener,
            pod.host_ip,
            host=listener.advertised_host,
            port=listener.advertised_port,
            shard=seen.shard,
        )
        # Of a shard that not every pod hosts yet: whoever came to one without it would be refused.
        is_everywhere = all(one.hosts(seen.shard) for one in seen.pods)
        if is_everywhere or (before is not None and before.route == of_all):
            route = of_all
    route = route or (before.route if before else "")
    own = own or (before.own if before else "")
    if not route and not own:
        return None
    return AdvertisedMember(broker_id=member.broker_id, route=route, own=own)


def _address(
    objects: dict[ObjectKey, Body],
    service: str,
    listener: ListenerWish,
    node: str | None,
    *,
    host: str | None = None,
    port: int | None = None,
    shard: str = "",
) -> str | None:
    """Host and port of a Service, from outside; None while one of them is not known.

    ``port`` is that of the first shard; each further one has the next, or no address if that is
    none any more.
    """
    live = objects.get(("Service", service), {})
    there: list[Body] = (live.get("spec") or {}).get("ports") or []
    if shard:
        index = names.shard_index(shard)
        there = [one for one in there if one.get("name") == names.shard_port_name(index)]
        port = None if port is None else port + index
    own: Body = next(iter(there), {})
    if listener.type == "NodePort":
        host, port = host or node, port or own.get("nodePort")
    else:
        host, port = host or balancer(live), port or own.get("port")
    return join_address(host, port) if host and port and port <= _LAST_PORT else None


def balancer(service: Body) -> str | None:
    """The first address that a cloud has given a Service; None for none."""
    found = (service.get("status") or {}).get("loadBalancer") or {}
    addresses = (entry.get("ip") or entry.get("hostname") for entry in found.get("ingress") or ())
    return next((address for address in addresses if address), None)


def name_service_status(seen: ControllerObserved) -> tuple[ListenerStatus, ...] | None:
    """The name servers for clients of each listener; None without listeners."""
    if seen.group is None or not seen.group.spec.clients.listeners:
        return None
    nodes = sorted({pod.host_ip for pod in seen.pods if pod.host_ip is not None})
    result = []
    for listener in seen.group.spec.clients.listeners:
        service = names.listener_service(seen.meta.name, listener.name)
        hosts: list[str | None] = [*nodes] if listener.type == "NodePort" else [None]
        found = (_address(seen.objects, service, listener, host) for host in hosts)
        addresses = tuple(address for address in found if address is not None)
        result.append(ListenerStatus(name=listener.name, addresses=addresses))
    return tuple(result)


def broker_status_of(seen: BrokerObserved) -> tuple[ListenerStatus, ...] | None:
    """The addresses that the controllers give clients; None without listeners.

    Of shards, which may be a hundred, only those of their masters.
    """
    found: dict[str, dict[str, None]] = {}
    for group in known_groups(seen):
        master = group.view.master_broker_id
        for name, members in group.view.listeners.items():
            texts = (
                text
                for item in members
                if not group.shard or item.broker_id == master
                for text in ((item.route,) if group.shard else (item.route, item.own))
            )
            found.setdefault(name, {}).update(dict.fromkeys(filter(None, texts)))
    return (
        tuple(
            ListenerStatus(name=name, addresses=tuple(texts))
            for name, texts in sorted(found.items())
        )
        or None
    )


def report_name_service(conditions: Conditions, seen: ControllerObserved, now: dt.datetime) -> None:
    """ListenersServed of a quorum: whether each listener with a certificate has a good one."""
    listeners = seen.group.spec.clients.listeners if seen.group is not None else ()
    if not secrets_of(listeners):
        return
    problem = certificate_problem(listeners, seen.certificates, now)
    if problem is None:
        text = "Each listener has its certificate."
        conditions.set("ListenersServed", "True", Reason.LISTENERS_SERVED, text)
    else:
        conditions.set("ListenersServed", "False", *problem)


def report_listeners(conditions: Conditions, seen: BrokerObserved, now: dt.datetime) -> None:
    """ListenersServed: whether clients of each listener reach the group; none without listeners."""
    if seen.group is None or not seen.group.spec.clients.listeners:
        return
    if isinstance(seen.view, Unreachable):
        reason = Reason.CONTROLLER_UNREACHABLE
        conditions.set("ListenersServed", "Unknown", reason, seen.view.reason)
        return
    listeners = seen.group.spec.clients.listeners
    problem = certificate_problem(listeners, seen.certificates, now) or next(
        filter(None, (_problem(part, seen.group) for part in wished_groups(seen))), None
    )
    if problem is None:
        text = "Clients of each listener are given addresses of every member."
        conditions.set("ListenersServed", "True", Reason.LISTENERS_SERVED, text)
    else:
        conditions.set("ListenersServed", "False", *problem)


def _problem(seen: BrokerObserved, group: BrokerGroup) -> tuple[Reason, str] | None:
    """What keeps clients of some listener from a group, or from a shard, for people."""
    of = f" of {seen.shard}" if seen.shard else ""
    ways = seen.controllers.spec.clients.listeners if seen.controllers is not None else ()
    view = seen.view
    for listener in group.spec.clients.listeners:
        if listener.name not in {way.name for way in ways}:
            text = (
                f"ControllerGroup {group.spec.controller_ref.name} has no listener "
                f"{listener.name}, so no client asks for a route there: add it to its spec.clients."
            )
            return Reason.LISTENER_UNKNOWN, text
        if not isinstance(view, GroupView):
            text = f"Members{of} at listener {listener.name} are not known yet."
            return Reason.WAITING_FOR_ADDRESS, text
        told = {item.broker_id: item for item in view.listeners.get(listener.name, [])}
        for member in view.members:
            item = told.get(member.broker_id)
            if member.alive and (item is None or not item.route or not item.own):
                who = f"broker {member.broker_id}{of}"
                text = (
                    f"Listener {listener.name} has no address of {who} yet; where no cloud gives "
                    "one, set advertisedHost, and host of replicas."
                )
                return Reason.WAITING_FOR_ADDRESS, text
    return None
