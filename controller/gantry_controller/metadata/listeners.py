"""Listeners: the addresses at which clients outside of the cluster reach a group and its members.

Its owner declares them with the group, and they are replicated with it: a master's death changes
who is master, and so which of them clients are given, and needs nobody to write anything. Members
are named by id, which outlives pods and addresses.

Rule protected: a client is given addresses of the listener it came in by, and no others. Where
there is none it is told of no broker, since one inside the cluster would be a dead end to it.
"""

import re
from collections.abc import Iterable, Mapping

import msgspec
from gantry_protocol.admin import AdvertisedMember
from gantry_protocol.errors import ResolveError
from gantry_protocol.hosts import split_address
from gantry_protocol.names import LISTENER_NAME, LISTENERS_MAX
from gantry_protocol.types import BrokerId

MEMBERS_MAX = 9

_NAME = re.compile(LISTENER_NAME)


class ListenedMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The addresses of a member for clients of one listener, as ``host:port``; empty: none.

    Attributes:
        broker_id: of the member.
        route: the address of the group while this member is its master.
        own: the address of this member and nobody else, which may be the same.
    """

    broker_id: BrokerId
    route: str
    own: str

    @property
    def leads_to_all(self) -> bool:
        """Whether ``route`` leads to the master whoever that is."""
        return bool(self.route) and self.route != self.own


class GroupListener(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A way in from outside of the cluster; ``members`` ascend by id."""

    name: str
    members: tuple[ListenedMember, ...] = ()

    def member(self, broker_id: BrokerId) -> ListenedMember | None:
        """The addresses of a member; None if it has none here."""
        return next((item for item in self.members if item.broker_id == broker_id), None)


def listeners_of(wish: Mapping[str, Iterable[AdvertisedMember]]) -> tuple[GroupListener, ...]:
    """Listeners as the state keeps them, by name."""
    return tuple(
        GroupListener(
            name,
            tuple(
                sorted(
                    (
                        ListenedMember(BrokerId(item.broker_id), item.route, item.own)
                        for item in members
                    ),
                    key=lambda item: item.broker_id,
                )
            ),
        )
        for name, members in sorted(wish.items())
    )


def as_wished(listeners: tuple[GroupListener, ...]) -> dict[str, list[AdvertisedMember]]:
    """The inverse of ``listeners_of``."""
    return {
        listener.name: [
            AdvertisedMember(broker_id=item.broker_id, route=item.route, own=item.own)
            for item in listener.members
        ]
        for listener in listeners
    }


def objection(listeners: tuple[GroupListener, ...]) -> str | None:
    """A sentence on what keeps these from being declared; None for nothing."""
    if len(listeners) > LISTENERS_MAX:
        return f"A group has at most {LISTENERS_MAX} listeners, not {len(listeners)}."
    for listener in listeners:
        if _NAME.fullmatch(listener.name) is None:
            return (
                f"{listener.name!r} is no name of a listener: 1 to 15 lower-case letters, digits, "
                "dashes, the first one a letter and the last one no dash."
            )
        ids = [item.broker_id for item in listener.members]
        if len(ids) > MEMBERS_MAX or len(set(ids)) < len(ids):
            return f"Listener {listener.name} names {len(ids)} members: at most {MEMBERS_MAX}, once"
        for item in listener.members:
            for address in filter(None, (item.route, item.own)):
                try:
                    split_address(address)
                except ResolveError as error:
                    return f"Listener {listener.name}, broker {item.broker_id}: {error}"
    return None


def route_at(
    listener: GroupListener, master_id: BrokerId | None, in_sync: tuple[BrokerId, ...]
) -> str | None:
    """The address that stands for the master of a group at a listener; None: there is none.

    Between two masters, and for a master that has no address here yet, that of a member in sync
    does if it leads to the master whoever that is. So a failover takes no route away.
    """
    own = None if master_id is None else listener.member(master_id)
    if own is not None and own.route:
        return own.route
    others = (listener.member(broker_id) for broker_id in in_sync)
    return next((item.route for item in others if item is not None and item.leads_to_all), None)
