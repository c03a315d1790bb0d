"""The ledger: what was sent, acknowledged and consumed, message by message, by unique key.

The rule protected here: a verdict may only excuse what nobody could know. A message counts as
acknowledged when an answer with code 0 arrived, whatever happened on the way. It is *lost* if it
was acknowledged and never consumed. A second stored copy is excused only as often as an answer to
this very message went missing, since each such attempt may have been stored; any further copy, and
any record that a consumer was given twice, counts as an unexplained duplicate.

Pure: no clock, no network. Keys are opaque.
"""

from __future__ import annotations

import msgspec


class Position(msgspec.Struct, frozen=True):
    """Where a record is stored: one queue of one broker group, and the offset in that queue."""

    broker_name: str
    queue_id: int
    queue_offset: int


class Verdict(msgspec.Struct, frozen=True):
    """The account at one moment; all members count messages, not deliveries.

    Attributes:
        sent: messages handed to the producer.
        acknowledged: of these, answered with code 0.
        unknown: neither acknowledged nor surely refused: some answer was lost and retries ran out.
        consumed: distinct messages that a consumer received.
        lost: acknowledged and not consumed.
        duplicated: consumed more than once.
        duplicated_after_lost_answer: of these, excused, since an answer to them was lost.
        misplaced: acknowledged at a position where the consumer found something else.
    """

    sent: int
    acknowledged: int
    unknown: int
    consumed: int
    lost: int
    duplicated: int
    duplicated_after_lost_answer: int
    misplaced: int

    @property
    def clean(self) -> bool:
        """Nothing acknowledged is missing, and every duplicate has its excuse."""
        return (
            self.lost == 0
            and self.misplaced == 0
            and self.duplicated == self.duplicated_after_lost_answer
        )


class _Message(msgspec.Struct):
    """What is known of one message."""

    lost_answers: int = 0
    acknowledged_at: Position | None = None
    finished: bool = False  # the producer gave its last word
    consumed_at: tuple[Position, ...] = ()


class Ledger:
    """Counts for one run of a producer and its consumers."""

    def __init__(self) -> None:
        self._messages: dict[str, _Message] = {}
        self._at: dict[Position, str] = {}  # what a consumer found at each position
        self._misplaced: set[str] = set()
        self.acknowledged = 0  # live counters for views; `verdict` recounts from the messages
        self.consumed = 0

    def sent(self, key: str) -> None:
        """`key` goes to the producer now."""
        assert key not in self._messages, "unique keys are unique"
        self._messages[key] = _Message()

    def answer_lost(self, key: str) -> None:
        """One attempt of `key` ended without an answer, or with stored-but-not-acknowledged."""
        self._messages[key].lost_answers += 1

    def acknowledge(self, key: str, position: Position) -> None:
        """`key` was answered with code 0 and is promised to be at `position`."""
        message = self._messages[key]
        message.acknowledged_at = position
        message.finished = True
        self.acknowledged += 1

    def give_up(self, key: str) -> None:
        """The producer will not try `key` again."""
        self._messages[key].finished = True

    def consume(self, key: str, position: Position) -> None:
        """A consumer was given `key`; keys of other producers are ignored."""
        message = self._messages.get(key)
        if message is None:
            return
        if not message.consumed_at:
            self.consumed += 1
        message.consumed_at = (*message.consumed_at, position)
        before = self._at.setdefault(position, key)
        if before != key:  # two messages at one position: something was rewritten after it was read
            self._misplaced.update((before, key))

    def outstanding(self) -> int:
        """Acknowledged messages that no consumer has received yet."""
        return sum(
            1
            for message in self._messages.values()
            if message.acknowledged_at is not None and not message.consumed_at
        )

    def verdict(self) -> Verdict:
        """Recount everything from the single messages."""
        messages = self._messages.values()
        acknowledged = [m for m in messages if m.acknowledged_at is not None]
        repeated = [m for m in messages if len(m.consumed_at) > 1]
        return Verdict(
            sent=len(self._messages),
            acknowledged=len(acknowledged),
            unknown=sum(
                1 for m in messages if m.finished and m.acknowledged_at is None and m.lost_answers
            ),
            consumed=sum(1 for m in messages if m.consumed_at),
            lost=sum(1 for m in acknowledged if not m.consumed_at),
            duplicated=len(repeated),
            duplicated_after_lost_answer=sum(1 for m in repeated if _excused(m)),
            misplaced=len(self._misplaced)
            + sum(
                1 for m in acknowledged if m.consumed_at and m.acknowledged_at not in m.consumed_at
            ),
        )


def _excused(message: _Message) -> bool:
    """Whether lost answers explain all copies: one copy per lost answer, and the acknowledged one.

    The same position twice is a repeated delivery, which no lost answer to a *send* explains.
    """
    copies = len(message.consumed_at)
    if len(set(message.consumed_at)) != copies:
        return False
    return copies <= message.lost_answers + (1 if message.acknowledged_at is not None else 0)
