"""All consume queues of a store, found by (topic, queue id) and made on first use.

A million queues are a million rows and not a million objects: handles are made when somebody asks,
and kept in two generations of bounded size. What changed since the last batch is kept until
``store`` has put it into one. Whoever goes through all queues does it by pages of rows.
"""

from collections.abc import Iterator, Mapping
from itertools import islice

from gantry_protocol.lite import LITE_PREFIX

from gantry_broker.queues import rows
from gantry_broker.queues.consume_queue import ConsumeQueue
from gantry_broker.queues.kv import KeyValue, KvBatch
from gantry_broker.queues.lite_index import LiteIndex
from gantry_broker.store.contract import QueueKey

HOT_QUEUES = 16_384  # handles in one generation; there are two, about 400 bytes for each
PAGE_QUEUES = 256  # read from the store at once when all are gone through

QueueRow = tuple[QueueKey, int, int, int]  # the key; first, minimum and maximum


class QueueTable:
    """The queues of one store.

    Attributes:
        fresh: entries and other changes that are in no batch yet, about.
        lite: the lite topics, whose queues are found here, too.
    """

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv
        self._changed: dict[QueueKey, ConsumeQueue] = {}
        self._hot: dict[QueueKey, ConsumeQueue] = {}
        self._cooling: dict[QueueKey, ConsumeQueue] = {}
        self.fresh = 0
        self.lite = LiteIndex(kv)

    def get(self, key: QueueKey) -> ConsumeQueue | None:
        """The queue, or None when it has never had a record; do not keep it."""
        queue = self._changed.get(key) or self._hot.get(key)
        if queue is not None:
            return queue
        if key[0].startswith(LITE_PREFIX):  # a call of another file for every send costs more
            return self.lite.queue(key)
        queue = self._cooling.get(key) or self._load(key)
        if queue is not None:
            self._keep(queue)
        return queue

    def changing(self, key: QueueKey, base: int) -> ConsumeQueue:
        """The queue, about to be changed; made, with ``base`` as its first offset, when new."""
        queue = self._changed.get(key)
        if queue is None:
            queue = self.get(key) or ConsumeQueue(self._kv, key, base, base, base)
            self._changed[key] = queue
            self.fresh += 1
        return queue

    def ensure(self, key: QueueKey, first: int, next_offset: int) -> bool:
        """Make a queue whose records are all in a part of the log that is not here.

        Returns:
            False when it is there and another record comes next in it.
        """
        queue = self.changing(key, next_offset)
        queue.first = min(first, queue.min_offset)
        return queue.max_offset == next_offset

    def trim(self, key: QueueKey, offset: int) -> None:
        """Serve nothing of a queue below ``offset`` from the local log any more."""
        self.changing(key, offset).trim(offset)

    def hide_topic(self, topic: str) -> None:
        """Serve nothing of what a topic has had up to now, from nowhere."""
        self.lite.hide_parent(topic)
        known = {key for key in self._changed if key[0] == topic}
        known.update(
            rows.decode_queue_key(key) for key, _ in self._kv.pairs(*rows.queues_of(topic))
        )
        for key in sorted(known):
            queue = self.changing(key, 0)
            queue.hide_below(queue.max_offset)

    def stored(self) -> Iterator[QueueRow]:
        """Every queue as the rows have it, in order; read page by page.

        What is changed meanwhile may be seen or not.
        """
        start, stop = rows.QUEUES
        while page := list(islice(self._kv.pairs(start, stop), PAGE_QUEUES)):
            for key, value in page:
                yield rows.decode_queue_key(key), *rows.decode_queue(value)
            start = page[-1][0] + b"\0"

    def positions(
        self, upcoming: Mapping[QueueKey, int], but: str
    ) -> list[tuple[str, int, int, int]]:
        """Topic, queue id, first offset and next one of every queue but those of a topic.

        ``upcoming``: the next offset, where it is another than the rows have it.
        """
        found = [
            (*key, first, upcoming.get(key, maximum))
            for key, first, _, maximum in self.stored()
            if key[0] != but
        ]
        for key, number in upcoming.items():
            if key[0] != but and self.get(key) is None:
                found.append((*key, 0, number))
        return found

    def stored_queues(self) -> Iterator[ConsumeQueue]:
        """A handle of every queue in the rows, for a look; ``changing`` has the one to change."""
        for key, first, minimum, maximum in self.stored():
            yield self._changed.get(key) or ConsumeQueue(self._kv, key, first, minimum, maximum)

    def store(self, batch: KvBatch) -> None:
        """Put everything that changed into ``batch``, which is written before anything is read."""
        for queue in self._changed.values():
            queue.store(batch)
        for queue in self._changed.values():
            self._keep(queue)
        self._changed.clear()
        self.fresh = 0
        self.lite.store(batch)

    def _keep(self, queue: ConsumeQueue) -> None:
        if len(self._hot) >= HOT_QUEUES:
            self._cooling, self._hot = self._hot, {}
        self._hot[queue.key] = queue

    def _load(self, key: QueueKey) -> ConsumeQueue | None:
        value = self._kv.get(rows.queue_key(key))
        return None if value is None else ConsumeQueue(self._kv, key, *rows.decode_queue(value))
