"""The plan for a request to reset the offsets of a consumer group (pure).

Rules protected:

- A request is made until it came to its end, and never after that: the status says which did. A
  status that is lost, or was not written before the operator died, has it made again; brokers carry
  a number out once in each queue (ADR 0091).
- Only the owner of the settings resets the group's offsets, and only once these are in place.
- What is refused is not tried again: the next request has a higher number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gantry_operator.models.consumer_group import OffsetResetStatus
from gantry_operator.plan.actions import Action, CheckAgain
from gantry_operator.plan.entities import Following, Told
from gantry_operator.plan.reasons import Reason

if TYPE_CHECKING:
    from gantry_protocol.admin_topics import OffsetResetView, OffsetResetWish

    from gantry_operator.models.consumer_group import OffsetReset

CONDITION = "OffsetsReset"
AGAIN_S = 5.0
_REFUSED_CHARS = 1024


class ResetOffsets(Action, frozen=True, kw_only=True):
    """Have brokers carry the request out where they have not."""

    wish: OffsetResetWish


def plan_reset(
    reset: OffsetReset | None, known: OffsetResetStatus | None, heard: OffsetResetView | None
) -> Following:
    """The part of the plan that is about a request: its status, and what is done for it.

    Args:
        reset: as the spec has it.
        known: the last one that came to its end, as the status has it.
        heard: its outcome when this process made it last.
    """
    if reset is None:
        return Following()
    if heard is not None and heard.request == reset.request and has_ended(heard):
        known = OffsetResetStatus(
            request=heard.request, queues=heard.queues, refused=heard.refused[:_REFUSED_CHARS]
        )
    if known is not None and known.request == reset.request:
        return Following(told={"offset_reset": known}, conditions=(_ended(known),))
    where = f"Request {reset.request} is not carried out everywhere yet"
    if heard is not None and heard.request == reset.request:
        where += f" ({heard.queues} queues are done): {'; '.join(heard.waiting)}"
    told = Told(CONDITION, "False", Reason.RESET_WAITS, f"{where}.")
    steps = (ResetOffsets(wish=reset.wish), CheckAgain(after_s=AGAIN_S))
    return Following(conditions=(told,), steps=steps)


def has_ended(heard: OffsetResetView) -> bool:
    """Whether a request is not made again."""
    return bool(heard.refused) or not heard.waiting


def _ended(known: OffsetResetStatus) -> Told:
    if known.refused:
        text = (
            f"Request {known.request} is refused: {known.refused}. Mend it, and give it a higher "
            "number."
        )
        return Told(CONDITION, "False", Reason.RESET_REFUSED, text)
    text = f"Request {known.request} was carried out in {known.queues} queues."
    return Told(CONDITION, "True", Reason.RESET_DONE, text)
