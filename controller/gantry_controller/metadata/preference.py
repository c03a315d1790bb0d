"""The places in which a group's master is wished: zones, in the order of the owner's wish.

The owner declares them with the group, each with the ids of the members that live there, so the
controllers prefer them with the owner away, too. A member is named by its id, which outlives pods
and addresses; one that nobody names comes after all that are named.

Rule protected: this only chooses among members that may be elected anyway. It never makes anybody
eligible, never moves a mastership, and a living master stays.
"""

from collections.abc import Iterable

import msgspec
from gantry_protocol.admin_bodies import PreferredPlace
from gantry_protocol.types import BrokerId


class WishedPlace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A zone, and the members that live there, ascending."""

    zone: str
    members: tuple[BrokerId, ...] = ()


def rank(places: tuple[WishedPlace, ...], broker_id: BrokerId) -> int:
    """The number of places that are preferred to a member's; all of them if it is in none."""
    for position, place in enumerate(places):
        if broker_id in place.members:
            return position
    return len(places)


def places_of(wish: Iterable[PreferredPlace]) -> tuple[WishedPlace, ...]:
    """Places as the state keeps them."""
    return tuple(
        WishedPlace(item.zone, tuple(BrokerId(broker_id) for broker_id in sorted(item.broker_ids)))
        for item in wish
    )


def as_declared(places: tuple[WishedPlace, ...]) -> list[PreferredPlace]:
    """The inverse of ``places_of``."""
    return [PreferredPlace(zone=item.zone, broker_ids=list(item.members)) for item in places]


def ambiguity(places: tuple[WishedPlace, ...]) -> str | None:
    """A sentence on what is named twice, so that the order would not be clear; None for nothing."""
    zones = [place.zone for place in places]
    if len(set(zones)) < len(zones):
        return "A zone is preferred twice: name each once"
    members = [broker_id for place in places for broker_id in place.members]
    if len(set(members)) < len(members):
        return "A member is named in two preferred zones: it lives in one"
    return None
