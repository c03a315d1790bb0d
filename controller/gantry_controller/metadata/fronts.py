"""Fronts: the events that lead clients of a cluster to them and back, and who is served there."""

import re
from ipaddress import AddressValueError, IPv6Address
from itertools import islice

from gantry_protocol.admin import MAX_FRONT_PORTS
from gantry_protocol.codes import ResponseCode

from gantry_controller.metadata.events import DeclareFronts, RemoveFronts
from gantry_controller.metadata.front_indexes import Fronts
from gantry_controller.metadata.results import Result, refuse
from gantry_controller.metadata.state import BrokerGroup, GroupKey, MetadataState

PORT_MAX = 65535

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*\Z")


def declare_fronts(state: MetadataState, event: DeclareFronts) -> Result:
    """Leads clients of a cluster to its fronts; commits nothing if they are led there already.

    The first declaration writes down the index of each group of the cluster.
    """
    problem = _problem(state, event)
    if problem is not None:
        return refuse(ResponseCode.CONTROLLER_INVALID_REQUEST, problem)
    wish = Fronts(event.name, event.address, event.first_port, event.ports)
    if state.fronts.get(event.cluster) == wish:
        return Result()
    state.write_front_indexes(event.cluster)
    state.put_plain("fronts", event.cluster, wish)
    return Result(changed=True)


def remove_fronts(state: MetadataState, event: RemoveFronts) -> Result:
    """Leads clients back to the brokers; a late or repeated removal changes nothing."""
    known = state.fronts.get(event.cluster)
    if known is None or known.name != event.name:
        return Result()
    state.put_plain("fronts", event.cluster, None)
    return Result(changed=True)


def fronted(state: MetadataState, cluster: str) -> list[tuple[int, BrokerGroup]]:
    """The serving groups of ``cluster`` for which some front could have a port, by index."""
    indexes = state.front_indexes(cluster)
    if indexes is None:
        return list(enumerate(islice(state.serving_by_name(cluster), MAX_FRONT_PORTS)))
    found = indexes.serving(MAX_FRONT_PORTS)
    return [(index, state.groups[cluster, name]) for index, name in found]


def at_fronts(state: MetadataState, key: GroupKey) -> tuple[str, int] | None:
    """Host and port at which clients reach the group ``key``; None: not by fronts."""
    cluster, name = key
    fronts, indexes = state.fronts.get(cluster), state.front_indexes(cluster)
    index = None if indexes is None else indexes.having(name)
    if fronts is None or index is None or index >= fronts.ports:
        return None
    return fronts.address, fronts.first_port + index


def _problem(  # a table of refusals
    state: MetadataState, event: DeclareFronts
) -> str | None:
    if _NAME.fullmatch(event.name) is None:
        return f"{event.name!r} is no name: 1 to 128 letters, digits, dots, dashes, underlines."
    if not _is_host(event.address):
        return f"{event.address!r} is neither a host name nor an IP address."
    if not 1 <= event.ports <= MAX_FRONT_PORTS:
        return f"Fronts have 1 to {MAX_FRONT_PORTS} ports, not {event.ports}."
    if not 1 <= event.first_port <= PORT_MAX + 1 - event.ports:
        return f"{event.ports} ports from {event.first_port} on do not fit into 1 to {PORT_MAX}."
    known = state.fronts.get(event.cluster)
    if known is not None and known.name != event.name:
        return f"Clients of cluster {event.cluster} are led to fronts {known.name}: remove those."
    if state.front_indexes(event.cluster) is None and not fronted(state, event.cluster):
        return f"There is no broker group in cluster {event.cluster}."
    return None


def _is_host(text: str) -> bool:
    if ":" not in text:
        return _HOST.match(text) is not None
    try:
        return IPv6Address(text).scope_id is None
    except AddressValueError:
        return False
