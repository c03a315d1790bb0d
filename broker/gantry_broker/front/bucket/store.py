"""``BucketStore``: the storage boundary over a tier alone, as of one version of it.

Rules protected:

* Only what the manifest names is read, through ``TierReader``: a run that does not match its sum
  is refused by name, and an object that is missing is asked for again.
* The head of the tier is not the end of a queue: the group may have confirmed more. Whoever stands
  there or beyond waits, and is never sent back.
* Nothing of a former topic is read under the name of the present one.

What it refuses: everything that would have to be stored, in one sentence.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import NamedTuple

from gantry_protocol.codes import ResponseCode
from gantry_protocol.types import Offset
from msgspec.structs import replace

from gantry_broker.front.core.as_of import AsOf
from gantry_broker.store.contract import (
    FIRST,
    Appended,
    Confirmed,
    GetResult,
    GetStatus,
    Learned,
    LiteTopic,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    Read,
    Records,
    Refusal,
    SendOutcome,
    Taken,
    Trimmed,
    WasRead,
)
from gantry_broker.store.tables.offsets import ConsumerOffsets
from gantry_broker.store.tables.topics import TopicTable
from gantry_broker.tier.core.locate import Gone, Queue, RunPlace
from gantry_broker.tier.core.reading import Local, Trouble
from gantry_broker.tier.reader import TierReader
from gantry_broker.tier.waits import TierWaits

READ_ONLY = Refusal(
    ResponseCode.SERVICE_NOT_AVAILABLE,
    "service not available now. no broker of the group is there, and a front has its tier only, "
    "to be read; try again once the group is back",
)


class _Head(NamedTuple):
    """A log of which nothing is here: all of it is in the tier."""

    log_start: Offset


class BucketStore:
    """See the module; implements ``Store``.

    Args:
        reader: of the group's tier.
        as_of: its tables, as of the version of the chain that the reader has.

    Attributes:
        topics: of the group.
        committed: consumer offsets.
        waits: reads that wait for the object store.
    """

    def __init__(self, reader: TierReader, as_of: AsOf) -> None:
        self.topics = TopicTable(1, as_of.topics)
        self.committed = ConsumerOffsets(as_of.offsets)
        self.waits = TierWaits(self)
        self._reader = reader
        self._begins = as_of.begins

    def close(self) -> None:
        """Send everybody who waits for the object store back to ask again."""
        self.waits.release()

    # ---- Extent

    @property
    def log(self) -> _Head:
        """A log that begins at the head of the tier."""
        return _Head(Offset(self._reader.index.chain.end))

    def min_offset(self, topic: str, queue_id: int) -> int:
        """The first offset of a queue in the tier."""
        places = self._places(topic, queue_id)
        if not places:
            return 0
        local = Local(self.log.log_start, places[-1].after)
        first = max(places[0].first, self._begin(topic, queue_id))
        return self._reader.first(Queue(topic, queue_id), first, local)

    def local_min_offset(self, topic: str, queue_id: int) -> int:
        """The end of the queue: nothing is here."""
        return self.max_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        """One past the last offset of a queue in the tier."""
        places = self._places(topic, queue_id)
        return places[-1].after if places else 0

    def _places(self, topic: str, queue_id: int) -> Sequence[RunPlace]:
        return self._reader.index.runs.places(Queue(topic, queue_id))

    def _begin(self, topic: str, queue_id: int) -> int:
        """Below it a queue has records of a former topic, if any."""
        return self._begins.get((topic, queue_id), 0)

    def _stored_at(self, topic: str, queue_id: int) -> int | None:
        """A time of the first run that has records of today, which are no older."""
        begin = self._begin(topic, queue_id)
        runs = (place for place in self._places(topic, queue_id) if place.after > begin)
        return next((place.min_ts for place in runs), None)

    # ---- Store

    def read(self, wanted: Read, done: WasRead) -> None:
        """Records of a queue; by key or log offset nothing is found here."""
        if not isinstance(wanted, QueueRead):
            done(READ_ONLY)
            return
        key = (wanted.topic, wanted.queue_id)
        end = self.max_offset(*key)
        result = GetResult(
            GetStatus.OFFSET_OVERFLOW_ONE, wanted.offset, min(self.min_offset(*key), end), end
        )
        begin = self._begin(*key)
        if wanted.offset < begin:
            done(replace(result, status=GetStatus.OFFSET_TOO_SMALL, next_offset=begin))
            return
        if self._is_beyond(wanted):
            done(result)
            return
        result = replace(result, status=GetStatus.OFFSET_IN_TIER)
        self.waits.ask(self._reader, wanted, result, partial(self._was_read, wanted.offset, done))

    def _is_beyond(self, wanted: QueueRead) -> bool:
        """Whether it is certain that the tier holds nothing of a queue from there on."""
        queue = Queue(wanted.topic, wanted.queue_id)
        end = max(self.max_offset(wanted.topic, wanted.queue_id), wanted.offset)
        found = self._reader.index.find(queue, wanted.offset, Local(self.log.log_start, end))
        return isinstance(found, Gone) and found.next_valid <= wanted.offset

    @staticmethod
    def _was_read(offset: int, done: WasRead, result: GetResult | Refusal) -> None:
        if (
            isinstance(result, GetResult)
            and result.status is GetStatus.OFFSET_TOO_SMALL
            and result.next_offset <= offset
        ):  # it became certain while the read waited
            result = replace(result, status=GetStatus.OFFSET_OVERFLOW_ONE, next_offset=offset)
        done(result)

    def offsets(self, questions: Sequence[QueueQuestion], done: Learned) -> None:
        """The offsets of some queues in the tier; refused while one of them is not certain."""
        answers = []
        for question in questions:
            answer = self._offsets(question)
            if isinstance(answer, Refusal):
                done(answer)
                return
            answers.append(answer)
        done(answers)

    def _offsets(self, question: QueueQuestion) -> QueueOffsets | Refusal:
        key = (question.topic, question.queue_id)
        queue, end = Queue(*key), self.max_offset(*key)
        local = Local(self.log.log_start, end)
        for offset in (self._begin(*key), end):
            found = self._reader.index.find(queue, offset, local)
            if isinstance(found, Trouble):
                return Refusal(ResponseCode.SYSTEM_BUSY, f"{found.reason}; try again")
        at = None
        if question.since is not None:
            since = self._reader.since(queue, question.since, local)
            at = end if since is None else max(since, self.min_offset(*key))
        return QueueOffsets(
            min_offset=self.min_offset(*key),
            max_offset=end,
            next_offset=end,
            stored_at=self._stored_at(*key) if question.at == FIRST else None,
            found=at,
        )

    def subscribe(
        self, confirmed: Confirmed, topics: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Nothing is told: once the tier moves, another store takes the place of this one."""
        return lambda: None

    def append(self, records: Records, done: Appended, *, once: int | None = None) -> None:
        """Refused."""
        done(SendOutcome(*READ_ONLY))

    def lite_topics(self, parent: str, after: str, count: int) -> list[LiteTopic]:
        """None: the tier has the messages of lite topics, and not where they stand."""
        return []

    def lite_count(self, parent: str) -> int:
        """None, see ``lite_topics``."""
        return 0

    def lite_end(self, queue: str) -> Offset | None:
        """None, see ``lite_topics``."""
        return None

    def trim(self, below: Offset, done: Trimmed) -> None:
        """Refused."""
        done(READ_ONLY)

    def snapshot(self, done: Taken) -> None:
        """Refused."""
        done(READ_ONLY)
