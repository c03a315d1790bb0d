"""``LocalStore``: the storage boundary over this process's own log, replication and tier.

It adds no state: appends are the group's, reads come from the message store, and from the tier
where the log begins later. What the tier does not say at once is waited for in ``TierWaits``.

What it refuses: nothing of its own; a full disk and a damaged file become refusals in words.
"""

from collections.abc import Callable, Collection, Sequence

from gantry_protocol.codes import ResponseCode
from gantry_protocol.errors import GantryError
from gantry_protocol.lite import lite_queue, parent_and_lite
from gantry_protocol.types import Offset
from msgspec.structs import replace

from gantry_broker.log import DiskFullError
from gantry_broker.member.cold_reads import ColdReads, Held
from gantry_broker.queues import MessageStore
from gantry_broker.queues.reads import ColdError
from gantry_broker.retention.trimming import LogTrim
from gantry_broker.store.contract import (
    FIRST,
    LAST,
    Appended,
    Confirmed,
    GetResult,
    GetStatus,
    KeyRead,
    Learned,
    LiteTopic,
    QueueKey,
    QueueOffsets,
    QueueQuestion,
    QueueRead,
    Read,
    Records,
    Refusal,
    SendOutcome,
    Snapshot,
    Taken,
    Trimmed,
    WasRead,
)
from gantry_broker.store.tables.names import SYSTEM_TOPICS
from gantry_broker.store.tables.offsets import ConsumerOffsets
from gantry_broker.store.tables.topics import TopicTable
from gantry_broker.tier.core.locate import Queue
from gantry_broker.tier.core.reading import Local
from gantry_broker.tier.waits import TierReads, TierWaits, first_offset

_TRIES = 3  # of a read that finds something else missing each time
Append = Callable[[Records, Appended, int | None], None]


class LocalStore:
    """See the module; implements ``Store``.

    Args:
        messages: where records are read.
        append: stores and replicates.
        tier: has what the local log no longer has; asked each time, None without one.
        trims: lets the beginning of the log go; None refuses.
        cold: reads what is not in memory; without it a pull waits for the disk, and all others
            with it.

    Attributes:
        messages: the group's store.
        waits: reads that wait for the tier.
    """

    def __init__(
        self,
        messages: MessageStore,
        append: Append,
        tier: Callable[[], TierReads | None],
        trims: LogTrim | None = None,
        cold: ColdReads | None = None,
    ) -> None:
        self.waits = TierWaits(messages)
        self.cold = cold
        self.messages = messages
        self._append = append
        self._tier = tier
        self._trims = trims

    @property
    def topics(self) -> TopicTable:
        """The topics, as of the confirmed end."""
        return self.messages.topics

    @property
    def committed(self) -> ConsumerOffsets:
        """The consumer offsets, with what was committed here."""
        return self.messages.offsets

    def end(self) -> None:
        """The mastership is over: whoever waits for tier or disk is sent back to ask again."""
        self.waits.release()
        if self.cold is not None:
            self.cold.release()

    def append(self, records: Records, done: Appended, *, once: int | None = None) -> None:
        """Store and replicate; see ``Store``."""
        try:
            self._append(records, done, once)
        except DiskFullError as error:
            done(SendOutcome(ResponseCode.SERVICE_NOT_AVAILABLE, str(error)))

    def read(self, wanted: Read, done: WasRead) -> None:
        """Confirmed records; see ``Store``."""
        self._try(wanted, done, {}, _TRIES)

    def _try(self, wanted: Read, done: WasRead, held: Held, tries: int) -> None:
        """Answer, or wait for what is neither in memory nor among ``held``."""
        try:
            if isinstance(wanted, QueueRead):
                result = self._read(wanted, held)
            elif isinstance(wanted, KeyRead):
                result = self.messages.find(wanted)
            else:
                result = self._view(wanted)
        except GantryError as error:  # this reader's trouble must not stop whoever it is called by
            done(Refusal(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        except ColdError as error:
            assert isinstance(wanted, QueueRead)
            self._wait_for_disk(error, replace(wanted), done, held, tries)
            return
        if result.status is GetStatus.OFFSET_IN_TIER:
            assert isinstance(wanted, QueueRead)
            self.waits.ask(self._tier(), wanted, result, done)
        else:
            done(result)

    def _wait_for_disk(
        self, missing: ColdError, wanted: QueueRead, done: WasRead, held: Held, tries: int
    ) -> None:
        if self.cold is None or not tries:  # pages leave memory as fast as they come
            done(Refusal(ResponseCode.SYSTEM_BUSY, "the disk is too slow, try again later"))
            return

        def fetched(found: Held | Refusal | None) -> None:
            if found is None:
                low, high = self._bounds(wanted)
                done(GetResult(GetStatus.OFFSET_IN_TIER, wanted.offset, low, high))
            elif isinstance(found, Refusal):
                done(found)
            else:
                self._try(wanted, done, {**held, **found}, tries - 1)

        self.cold.ask(missing.places, fetched)

    def _bounds(self, wanted: QueueRead) -> tuple[int, int]:
        key = (wanted.topic, wanted.queue_id)
        return first_offset(self.messages, self._tier(), key), self.messages.max_offset(*key)

    def _read(self, wanted: QueueRead, held: Held) -> GetResult:
        store = self.messages

        def fetch(offset: Offset, size: int) -> bytes | None:
            return held.get((offset, size)) or store.log.read_cached(offset, size)

        # What changes tables was just written, and a session passes it on with the confirm that it
        # comes with, not a moment later: though the kernel may say of any page "it takes a while".
        is_waited_for = self.cold is None or wanted.topic in SYSTEM_TOPICS
        result = store.get(
            wanted.topic,
            wanted.queue_id,
            wanted.offset,
            wanted.limits,
            wanted.codes,
            None if is_waited_for else fetch if held else store.log.read_cached,
        )
        beyond = wanted.offset > result.max_offset
        if beyond and wanted.offset <= store.next_offset(wanted.topic, wanted.queue_id):
            # It is waited for. Upstream's answer ("offset illegal") would make a consumer that has
            # just moved to a new master go back.
            return GetResult(
                GetStatus.OFFSET_OVERFLOW_ONE, wanted.offset, result.min_offset, result.max_offset
            )
        return result

    def _view(self, offset: int) -> GetResult:
        found = self.messages.view(offset)
        if found is None:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, 0, 0, 0)
        return GetResult(GetStatus.FOUND, 0, 0, 0, found, 1)

    def offsets(self, questions: Sequence[QueueQuestion], done: Learned) -> None:
        """The offsets of some queues; see ``Store``."""
        try:
            answers = [self._offsets(question) for question in questions]
        except GantryError as error:
            done(Refusal(ResponseCode.SYSTEM_ERROR, str(error)))
            return
        done(answers)

    def _offsets(self, question: QueueQuestion) -> QueueOffsets:
        store, key = self.messages, (question.topic, question.queue_id)
        store.check_known()
        low, high = first_offset(store, self._tier(), key), store.max_offset(*key)
        return QueueOffsets(
            min_offset=low,
            max_offset=high,
            next_offset=store.next_offset(*key),
            stored_at=self._stored_at(key, question.at, low, high),
            bytes_held=store.bytes_behind(*key, 0),
            found=None if question.since is None else self._found(question, question.since, low),
        )

    def _stored_at(self, key: QueueKey, at: int | None, low: int, high: int) -> int | None:
        if at is None:
            return None
        tier = self._tier()
        if at == FIRST and tier is not None and low < self.messages.local_min_offset(*key):
            return tier.earliest(Queue(*key))
        offset = low if at == FIRST else high - 1 if at == LAST else at
        return self.messages.store_time(*key, offset)

    def _found(self, question: QueueQuestion, since: int, first: int) -> int:
        """In the local log, or in a run of the tier that may have an earlier one."""
        store, key, tier = self.messages, (question.topic, question.queue_id), self._tier()
        found = store.offset_at_time(*key, since, upper=question.upper)
        low = store.local_min_offset(*key)
        if tier is None or first == low or found > low:
            return found
        earlier = tier.since(Queue(*key), since, Local(store.log.log_start, low))
        return found if earlier is None else max(first, min(found, earlier))

    def lite_topics(self, parent: str, after: str, count: int) -> list[LiteTopic]:
        """Lite topics of a parent; see ``Store``."""
        page = self.messages.lite.page(lite_queue(parent, ""), lite_queue(parent, after), count)
        return [
            LiteTopic(parent_and_lite(name)[1], head.last, head.stored_ms) for name, head in page
        ]

    def lite_count(self, parent: str) -> int:
        """Their number; see ``Store``."""
        lite = self.messages.lite
        return lite.counts.get(parent, 0) if parent else len(lite)

    def lite_end(self, queue: str) -> Offset | None:
        """The end of one; see ``Store``."""
        head = self.messages.lite.head(queue)
        return None if head is None else Offset(head.last + 1)

    def trim(self, below: Offset, done: Trimmed) -> None:
        """Nothing below a log offset is needed any more; see ``Store``."""
        if self._trims is None:
            done(Refusal(ResponseCode.SYSTEM_ERROR, "this log is not trimmed"))
        else:
            self._trims.trim(below, done)

    def subscribe(
        self, confirmed: Confirmed, topics: Collection[str] | None = None
    ) -> Callable[[], None]:
        """Tell of each rise of confirm; see ``Store``."""
        store = self.messages

        def dispatched(queues: Collection[QueueKey]) -> None:
            confirmed(store.dispatched, queues)

        store.add_listener(dispatched, topics)
        return lambda: store.remove_listener(dispatched)

    def snapshot(self, done: Taken) -> None:
        """The tables as of now; see ``Store``."""
        store = self.messages
        if not store.is_whole:
            remark = "this broker has not confirmed yet what was said before its log begins"
            done(Refusal(ResponseCode.SYSTEM_BUSY, remark))
            return
        topics, rows = store.topics, store.offsets.all()
        done(Snapshot(store.dispatched, topics.version, topics.all(), rows))
