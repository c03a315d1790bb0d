"""Messages: lost, duplicated, phantom, rewritten. Pure, linear.

The rule protected here: only what nobody could know is excused. A message is *lost* if its send was
acknowledged and no consumer received it. It may be stored more than once as often as an answer to
its send was lost; any further copy is a duplicate without excuse. One copy delivered again is a
*redelivery*. *Phantom* is what nobody sent, or what was consumed though its send surely failed.

Operations: `enqueue` with a unique value, whose extra says `lost=N` for answers that were lost on
the way to its outcome and `position=…` for the promised place; `dequeue` with value and position.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec
from gantry_protocol.errors import GantryError

from gantry_chaos.checkers.verdicts import Verdict, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gantry_chaos.history.operations import Operation

NAME = "messages"


class _Message(msgspec.Struct):
    """What is known of one value."""

    acknowledged: bool = False
    refused: bool = False
    lost_answers: int = 0
    promised: str | None = None
    found: list[str] = msgspec.field(default_factory=list)  # positions, one per delivery
    sends: int = 0

    @property
    def copies(self) -> int:
        """The number of copies: different positions; deliveries without one count each."""
        return len(set(filter(None, self.found))) + sum(1 for item in self.found if not item)

    @property
    def excused_copies(self) -> int:
        """The number of copies that are explained."""
        return self.lost_answers + (1 if self.acknowledged else 0)


def check(
    operations: Iterable[Operation], *, drained: bool = True, redelivery_allowed: bool = False
) -> Verdict:
    """The account of all messages.

    Args:
        operations: the history; others than `enqueue` and `dequeue` are passed over.
        drained: consumers have read to the end. Otherwise what is missing may still come, and the
            checker has not passed.
        redelivery_allowed: consumers were stopped, so a message may come to them again.
    """
    messages: dict[str, _Message] = {}
    for operation in operations:
        if operation.op == "enqueue" and operation.value is not None:
            _send(messages.setdefault(operation.value, _Message()), operation)
        elif (
            operation.op == "dequeue"
            and operation.outcome == "SUCCESS"
            and operation.value is not None
        ):
            message = messages.setdefault(operation.value, _Message())
            message.found.append(operation.extra.get("position", ""))
    return _account(messages, drained=drained, redelivery_allowed=redelivery_allowed)


def _send(message: _Message, one: Operation) -> None:
    message.sends += 1
    message.lost_answers += _count(one)
    message.promised = one.extra.get("position")
    match one.outcome:
        case "SUCCESS":
            message.acknowledged = True
        case "FAILURE":
            message.refused = True
        case "UNKNOWN":
            message.lost_answers = max(1, message.lost_answers)


def _count(one: Operation) -> int:
    text = one.extra.get("lost", "0")
    if not (text.isascii() and text.isdigit()):
        raise GantryError(f"{one.client} says of {one.value} lost={text}, which is no number.")
    return int(text)


def _account(messages: dict[str, _Message], *, drained: bool, redelivery_allowed: bool) -> Verdict:
    sent = [message for message in messages.values() if message.sends]
    lost = [value for value, item in messages.items() if item.acknowledged and not item.found]
    repeated = [value for value, item in messages.items() if item.copies > 1]
    unexplained = [
        value
        for value in repeated
        if messages[value].sends and messages[value].copies > messages[value].excused_copies
    ]
    redelivered = [value for value, item in messages.items() if len(item.found) > item.copies]
    phantom = [
        value
        for value, item in messages.items()
        if item.found and (not item.sends or (item.refused and item.excused_copies == 0))
    ]
    misplaced = [
        value
        for value, item in messages.items()
        if item.acknowledged and item.promised and item.found and item.promised not in item.found
    ]
    at = Counter(position for item in messages.values() for position in set(item.found) if position)
    rewritten = sorted(position for position, count in at.items() if count > 1)
    twice = [value for value, item in messages.items() if item.sends > 1]
    at_most_once = not unexplained and (redelivery_allowed or not redelivered)
    violations: list[str] = [
        *([] if drained else ["Consumers did not read to the end, so losses are not known."]),
        *([] if sent else ["Nothing was sent, so nothing is known."]),
        *_each("{} was acknowledged and never consumed.", lost),
        *_each("{} is stored more often than lost answers explain.", unexplained),
        *([] if redelivery_allowed else _each("{} was delivered twice.", redelivered)),
        *_each("{} was consumed, but nobody sent it, or its send surely failed.", phantom),
        *_each("{} was not found where it was acknowledged.", misplaced),
        *_each("Two messages were found at {}.", rewritten),
        *_each("{} was sent twice, but values are unique.", twice),
    ]
    return verdict(
        NAME,
        {
            "enqueueInvokeCount": len(sent),
            "enqueueSuccessCount": sum(1 for item in sent if item.acknowledged),
            "unknownCount": sum(1 for item in sent if not item.acknowledged and item.lost_answers),
            "dequeueSuccessCount": sum(1 for item in messages.values() if item.found),
            "lostMessageCount": len(lost),
            "duplicateMessageCount": len(repeated),
            "duplicateAfterLostAnswerCount": len(repeated) - len(unexplained),
            "redeliveredMessageCount": len(redelivered),
            "phantomMessageCount": len(phantom),
            "misplacedMessageCount": len(misplaced),
            "rewrittenPositionCount": len(rewritten),
            "atMostOnce": at_most_once,
            "atLeastOnce": drained and not lost,
            "exactlyOnce": at_most_once and drained and not lost,
            "isValid": not violations,
        },
        violations,
    )


def _each(sentence: str, values: Iterable[str]) -> Iterator[str]:
    return (sentence.format(value) for value in values)
