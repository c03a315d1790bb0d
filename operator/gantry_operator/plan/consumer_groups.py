"""Comparison of the settings of a consumer group with the wish for them (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.admin_client.outcomes import Unreachable

from gantry_operator.plan.entities import Compared
from gantry_operator.plan.topics import MAX_TOLD, NO_GROUP

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gantry_protocol.admin_topics import ConsumerGroupView, ConsumerGroupWish

_WORDS = {
    "consume_enable": "enabled",
    "consume_broadcast_enable": "broadcast",
    "retry_queue_nums": "retryQueues",
    "retry_max_times": "maxRetries",
    "consume_message_orderly": "inOrder",
}


class ConsumerGroupsHeld(msgspec.Struct, frozen=True):
    """The settings of a cluster's consumer groups, as the controllers told them.

    Attributes:
        groups, new: as in ``ConsumerGroupList``.
        consumer_groups: by name.
    """

    groups: tuple[str, ...]
    new: tuple[str, ...]
    consumer_groups: Mapping[str, ConsumerGroupView]


def consumer_group_standing(
    name: str, wish: ConsumerGroupWish, held: ConsumerGroupsHeld | Unreachable
) -> Compared:
    """Whether every broker group has the settings as they are wished.

    A broker group that never had a master takes over with its first one what the others have.
    """
    if isinstance(held, Unreachable):
        return Compared(state="Unknown", what=held.reason)
    if not held.groups:
        return NO_GROUP
    view = held.consumer_groups.get(name)
    if view is None or not view.variants:
        return Compared(state="Absent")
    told: list[str] = []
    having: set[str] = set()
    for variant in view.variants:
        having.update(variant.groups or held.groups)
        where = f" in {variant.groups[0]}" if variant.groups else ""
        for field, word in _WORDS.items():
            is_, wished = getattr(variant, field), getattr(wish, field)
            if wished is not None and is_ != wished:
                told.append(f"{word} {_text(is_)}{where}, not {_text(wished)}")
    missing = [group for group in held.groups if group not in having and group not in held.new]
    if missing:
        told.append(f"missing in {', '.join(missing[:MAX_TOLD])}")
    if not told:
        return Compared(state="Same")
    more = f", and {len(told) - MAX_TOLD} more" if len(told) > MAX_TOLD else ""
    return Compared(state="Differs", what="; ".join(told[:MAX_TOLD]) + more)


def _text(value: bool | int) -> str:
    return str(value).lower()
