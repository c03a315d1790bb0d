"""Consumers that read one topic wherever the master sends them, and an administrator of readers.

Each of them gets every message once, in the order of its queue, and only confirmed ones: whichever
member it asks, and whatever happens to that member. Of the last one that holds for the messages
that pass its filter, and it gets no other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from gantry_cli.client import topics
from gantry_cli.client.consumer import Consumer, ReceivedRecord, Start
from gantry_cli.client.session import session
from gantry_protocol.errors import GantryError
from gantry_protocol.settings.readers import READERS
from sim.kernel.world import Violation
from sim.product.workload import TOPIC, Clients

if TYPE_CHECKING:
    from sim.product.cluster import Cluster, Node
    from sim.product.workload import Told, Workload

CONSUMERS = 4
QUEUES = 2
FILTERS = f"reader-{CONSUMERS - 1}"  # by SQL
PASSES = tuple("13579BDF")  # ends of keys: about half of them
_NUMBERS = (  # of these ends, as ``number`` has them
    "KEYS > 0 AND KEYS < 2 OR KEYS BETWEEN 3 AND 3.5 OR KEYS IN ('5', '7') OR KEYS = 9.0"
    " OR KEYS >= 11 AND NOT (KEYS > 11) OR KEYS <= 13 AND KEYS > 1.25e1"
    " OR KEYS NOT BETWEEN -1 AND 14L"
)
_ANY_END = " OR ".join(f"UNIQ_KEY ENDSWITH '{end}'" for end in PASSES)
SQL = (  # these, by many of the ways to say it that there are
    f"({_ANY_END}) AND ({_NUMBERS})"
    " AND UNIQ_KEY IS NOT NULL AND nobody IS NULL /* no message has it */"
    " AND UNIQ_KEY NOT IN ('', 'it''s') AND NOT (UNIQ_KEY = 'none') AND UNIQ_KEY <> 'no'"
    " AND UNIQ_KEY NOT CONTAINS '?' AND UNIQ_KEY NOT STARTSWITH '?'"
    " AND (nobody > 5 OR nobody BETWEEN 1 AND 2.5e3 OR nobody = TRUE OR UNIQ_KEY IS NOT NULL)"
    " AND NOT (nobody IS NOT NULL AND nobody <= -7L) -- the end"
)


def number(key: str) -> str:
    """What a message has as its key for people: the end of its unique key as a number."""
    return str(int(key[-1], 16))


CHOICES = ("3", "3", "3", "2", "1;1=3", "1")


class Readers(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of what is delivered.
        workload: whose messages these are.
    """

    unsettled = "consumers of a topic with readers do not get everything"

    def __init__(self, cluster: Cluster, watch: Told, workload: Workload) -> None:
        super().__init__(cluster)
        self._watch = watch
        self._workload = workload
        self._seen: dict[str, set[str]] = {}
        self._consumers: list[Consumer] = []
        self._wrong = ""

    def start(self) -> None:
        """Begin."""
        self._cluster.client("readers-admin", self._administer).boot()
        for number in range(CONSUMERS):
            name = f"reader-{number}"
            self._seen[name] = set()
            self._cluster.client(name, self._consume).boot()

    @property
    def is_settled(self) -> bool:
        return not self._busy and not self._owed()

    def judge(self) -> None:
        """Raises Violation: a consumer lacks an acknowledged message, or got one out of turn."""
        super().judge()
        if self._wrong:
            raise Violation(self._wrong)
        if any(member for item in self._consumers for member in item.read_bytes):
            self._cluster.world.count("read at a replica")
        owed = self._owed()
        if owed:
            raise Violation(f"{self.unsettled}: {owed}")

    def _owed(self) -> dict[str, int]:
        """By consumer, how many acknowledged messages it lacks."""
        messages = self._workload.ledger._messages
        owed = {key for key, message in messages.items() if message.acknowledged_at is not None}
        passes = {key for key in owed if key.endswith(PASSES)}
        found = {
            name: len((passes if name == FILTERS else owed) - seen)
            for name, seen in self._seen.items()
        }
        return {name: count for name, count in found.items() if count}

    async def _administer(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            readers = "3"
            while not self._stops:
                with suppress(GantryError):
                    await topics.create_topic(
                        client, TOPIC, queues=QUEUES, cluster=None, attributes={READERS: readers}
                    )
                    readers = rng.choice(CHOICES)
                await asyncio.sleep(rng.choice([0.5, 2.0, 5.0]))
        self._busy -= 1

    async def _consume(self, node: Node) -> None:
        seen, following = self._seen[node.name], dict[int, int]()
        has_filter = node.name == FILTERS
        async with session(self._cluster.name_servers) as client:

            async def received(item: ReceivedRecord) -> None:
                position = item.position
                self._watch.served(item.record.physical_offset + 1, position.broker_name)
                expected = following.get(position.queue_id, 0)
                is_passed = item.key.endswith(PASSES) and position.queue_offset >= expected
                if not is_passed if has_filter else position.queue_offset != expected:
                    self._wrong = self._wrong or f"{node.name} goes from {expected} to {position}"
                following[position.queue_id] = position.queue_offset + 1
                seen.add(item.key)

            consumer = Consumer(
                client.routes,
                client.calls,
                TOPIC,
                received,
                group=node.name,
                start=Start.EARLIEST,
                sql=SQL if has_filter else None,
                commit_interval_s=None,
            )
            self._consumers.append(consumer)
            await consumer.run()
