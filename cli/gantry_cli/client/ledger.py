"""The ledger: what was sent, acknowledged and consumed, message by message, by unique key.

The rule protected here: a verdict may only excuse what nobody could know. A message counts as
acknowledged when an answer with code 0 arrived, whatever happened on the way. It is *lost* if it
was acknowledged and never consumed. A second stored copy is excused only as often as an answer to
this very message went missing, since each such attempt may have been stored; any further copy, and
any record that a consumer was given twice, counts as an unexplained duplicate.

A run of days cannot remember every message. A bounded ledger forgets the oldest of those that are
settled: acknowledged at once, and consumed once, there where it was promised. They stay in all
totals, and since nothing about them was left open, whatever comes of one later is unexplained.

Pure: no clock, no network. Keys are opaque.
"""

from __future__ import annotations

from collections import deque

import msgspec


class Position(msgspec.Struct, frozen=True):
    """The place of a record: one queue of one broker group, and the offset in that queue."""

    broker_name: str
    queue_id: int
    queue_offset: int


class DeliveryAccount(msgspec.Struct, frozen=True, rename="camel"):
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
        late: deliveries of messages that were settled so long ago that they are forgotten.
    """

    sent: int
    acknowledged: int
    unknown: int
    consumed: int
    lost: int
    duplicated: int
    duplicated_after_lost_answer: int
    misplaced: int
    late: int = 0

    @property
    def clean(self) -> bool:
        """Nothing acknowledged is missing, and every duplicate has its excuse."""
        return (
            self.lost == 0
            and self.misplaced == 0
            and self.late == 0
            and self.duplicated == self.duplicated_after_lost_answer
        )


class _Message(msgspec.Struct):
    """What is known of one message."""

    lost_answers: int = 0
    acknowledged_at: Position | None = None
    finished: bool = False  # the producer gave its last word
    consumed_at: tuple[Position, ...] = ()


class Ledger:
    """Counts for one run of a producer and its consumers.

    Args:
        keep: settled messages that are remembered one by one; None: all.
    """

    def __init__(self, *, keep: int | None = None) -> None:
        self._keep = keep
        self._messages: dict[str, _Message] = {}
        self._at: dict[Position, str] = {}  # what a consumer found at each position
        self._misplaced: set[str] = set()
        self._settled: deque[str] = deque()  # by the time they settled; all in `_messages`
        self._forgotten = 0  # each was sent, acknowledged and consumed once
        self._late = 0
        self.acknowledged = 0  # live counters for views; `verdict` recounts from the messages
        self.consumed = 0
        self.lost_answers = 0
        self._outstanding = 0

    def __len__(self) -> int:
        """Messages that are remembered one by one."""
        return len(self._messages)

    def sent(self, key: str) -> None:
        """`key` goes to the producer now."""
        assert key not in self._messages, "unique keys are unique"
        self._messages[key] = _Message()

    def answer_lost(self, key: str) -> None:
        """One attempt of `key` ended without an answer, or with stored-but-not-acknowledged."""
        self._messages[key].lost_answers += 1
        self.lost_answers += 1

    def acknowledge(self, key: str, position: Position) -> None:
        """`key` was answered with code 0 and is promised to be at `position`."""
        message = self._messages[key]
        assert message.acknowledged_at is None, "a message is acknowledged once"
        message.acknowledged_at = position
        message.finished = True
        self.acknowledged += 1
        if message.consumed_at:
            self._settle(key)
        else:
            self._outstanding += 1

    def give_up(self, key: str) -> None:
        """The producer will not try `key` again."""
        self._messages[key].finished = True

    def consume(self, key: str, position: Position, *, ours: bool = False) -> None:
        """A consumer was given `key`, which may be another producer's.

        Args:
            key: of the message.
            position: where it was found.
            ours: the producer of this run made the key. If it is not known then, it is forgotten.
        """
        message = self._messages.get(key)
        if message is None:
            self._late += int(ours)
            return
        first = not message.consumed_at
        message.consumed_at = (*message.consumed_at, position)
        before = self._at.setdefault(position, key)
        if before != key:  # two messages at one position: something was rewritten after it was read
            self._misplaced.update((before, key))
        if first:
            self.consumed += 1
            if message.acknowledged_at is not None:
                self._outstanding -= 1
                self._settle(key)

    def _settle(self, key: str) -> None:
        """`key` is acknowledged and consumed; the oldest such message may be forgotten for it."""
        if self._keep is None:
            return
        self._settled.append(key)
        if len(self._settled) > self._keep:
            self._forget(self._settled.popleft())

    def _forget(self, key: str) -> None:
        """Forget `key`, unless there is something to remember about it."""
        message = self._messages[key]
        if message.lost_answers or key in self._misplaced:
            return
        if message.consumed_at != (message.acknowledged_at,):
            return
        del self._messages[key]
        del self._at[message.consumed_at[0]]
        self._forgotten += 1

    def outstanding(self) -> int:
        """Acknowledged messages that no consumer has received yet."""
        return self._outstanding

    def verdict(self) -> DeliveryAccount:
        """Recount everything from the single messages."""
        messages = self._messages.values()
        acknowledged = [m for m in messages if m.acknowledged_at is not None]
        repeated = [m for m in messages if len(m.consumed_at) > 1]
        return DeliveryAccount(
            sent=len(self._messages) + self._forgotten,
            acknowledged=len(acknowledged) + self._forgotten,
            unknown=sum(
                1 for m in messages if m.finished and m.acknowledged_at is None and m.lost_answers
            ),
            consumed=sum(1 for m in messages if m.consumed_at) + self._forgotten,
            lost=sum(1 for m in acknowledged if not m.consumed_at),
            duplicated=len(repeated),
            duplicated_after_lost_answer=sum(1 for m in repeated if _excused(m)),
            misplaced=len(self._misplaced)
            + sum(
                1 for m in acknowledged if m.consumed_at and m.acknowledged_at not in m.consumed_at
            ),
            late=self._late,
        )


def _excused(message: _Message) -> bool:
    """Whether lost answers explain all copies: one copy per lost answer, and the acknowledged one.

    The same position twice is a repeated delivery, which no lost answer to a *send* explains.
    """
    copies = len(message.consumed_at)
    if len(set(message.consumed_at)) != copies:
        return False
    return copies <= message.lost_answers + (1 if message.acknowledged_at is not None else 0)
