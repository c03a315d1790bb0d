"""Comparison of a topic in the groups of a cluster with the wish for it (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator.plan.entities import Compared
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_protocol.admin_topics import TopicVariant, TopicView, TopicWish

LEFT_ALONE = ("cleanup.policy", "queue.type")
"""Attributes that nobody can change once a topic exists."""
MAX_TOLD = 3
NO_GROUP = Compared(state="Unknown", what="The cluster has no broker group yet.", nowhere=True)


class TopicsHeld(msgspec.Struct, frozen=True):
    """The topics of a cluster, as the controllers told them.

    Attributes:
        groups, unheard, new: as in ``TopicList``.
        topics: by name.
    """

    groups: tuple[str, ...]
    unheard: tuple[str, ...]
    new: tuple[str, ...]
    topics: Mapping[str, TopicView]


def topic_standing(name: str, wish: TopicWish, held: TopicsHeld | Unreachable) -> Compared:
    """Whether every group has the topic as it is wished.

    A group that never had a master takes over with its first one what the others have, so what it
    lacks until then is no difference; what one lacks whose log was not heard yet is not known.
    """
    if isinstance(held, Unreachable):
        return Compared(state="Unknown", what=held.reason)
    view = held.topics.get(name)
    if view is not None and view.mapped:
        what = f"Topic {name} has a queue map: change it by gantry queues map, and delete this one."
        return Compared(state="Differs", what=what, refused=Reason.HAS_QUEUE_MAP)
    if not held.groups:
        return NO_GROUP
    if view is None or not view.variants:
        if held.unheard:
            what = f"The master of {held.unheard[0]} has not said yet which topics its log has."
            return Compared(state="Unknown", what=what)
        return Compared(state="Absent")
    told = _differences(view, wish, held)
    most = max(variant.read_queues for variant in view.variants)
    if most > wish.read_queues and not wish.fewer_reads:
        what = (
            f"Topic {name} has {most} queues to read, and {wish.read_queues} are wished: what is "
            f"in the others would be read by nobody. Set readQueues to {most}, or "
            "allowFewerQueues to true once they are consumed."
        )
        return Compared(state="Differs", what=what, refused=Reason.QUEUES_WOULD_SHRINK)
    if not told:
        return Compared(state="Same")
    more = f", and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
    return Compared(state="Differs", what="; ".join(told[:MAX_TOLD]) + more)


def _differences(view: TopicView, wish: TopicWish, held: TopicsHeld) -> list[str]:
    told: list[str] = []
    having: set[str] = set()
    for variant in view.variants:
        having.update(variant.groups or held.groups)
        told += _of_variant(variant, wish)
    excused = {*held.unheard, *held.new}
    missing = [group for group in held.groups if group not in having and group not in excused]
    if missing:
        told.append(f"missing in {', '.join(missing[:MAX_TOLD])}")
    return told


def _of_variant(variant: TopicVariant, wish: TopicWish) -> list[str]:
    where = f" in {variant.groups[0]}" if variant.groups else ""
    pairs = (
        ("queues", variant.write_queues, wish.write_queues),
        ("readQueues", variant.read_queues, wish.read_queues),
        ("permission", variant.perm, wish.perm),
    )
    told = [f"{what} {is_}{where}, not {wished}" for what, is_, wished in pairs if is_ != wished]
    there = {key: text for key, text in variant.attributes.items() if key not in LEFT_ALONE}
    for key in sorted({*there, *wish.attributes}):
        if there.get(key) != wish.attributes.get(key):
            has = f"{key} {there[key]}" if key in there else f"no {key}"
            told.append(f"{has}{where}, not {wish.attributes.get(key, 'any')}")
    return told
