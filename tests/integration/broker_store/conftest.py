"""A group of one member behind a real server on loopback."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from gantry_broker.clients import ClientProcessor
from gantry_broker.clients.view import Created
from gantry_broker.consumers import Consumers
from gantry_broker.queues import MessageStore
from gantry_broker.store.contract import Appended, Refusal, SendOutcome, StoredAt
from gantry_broker.store.local import LocalStore
from gantry_broker.tables.topics import TopicChange, change_record
from gantry_protocol.bodies import TopicConfig
from gantry_protocol.codes import ResponseCode
from gantry_protocol.records import MessageRecord
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.server import RemotingServer
from gantry_protocol.types import Offset
from support.group_view import NoControllers

SEGMENT_BYTES = 1 << 20


class LoneGroup:
    """Confirmed is what is flushed."""

    broker_name = "broker-a"
    cluster = "DefaultCluster"
    store_host = ("127.0.0.1", 10911)

    def __init__(self, store: MessageStore) -> None:
        self.messages = store
        self.store = LocalStore(store, self.append, lambda: None)
        self.consumers = Consumers(self.cluster, self.broker_name, NoControllers())
        self._waiting: list[tuple[list[StoredAt], Appended]] = []
        self._is_flushing = False

    def accepting_writes(self) -> Refusal | None:
        return None

    def append(self, records: list[MessageRecord], done: Appended) -> None:
        self._waiting.append((self.messages.put(records, now_ms=int(time.time() * 1000)), done))
        self._flush()

    def _flush(self) -> None:
        if self._waiting and not self._is_flushing:
            self._is_flushing = True
            self.messages.log.flush_soon(self._flushed)

    def _flushed(self, flushed: Offset) -> None:
        self._is_flushing = False
        self.messages.dispatch(flushed)
        ready = [one for one in self._waiting if one[0][-1].end <= flushed]
        self._waiting = self._waiting[len(ready) :]
        for stored, done in ready:
            done(SendOutcome(ResponseCode.SUCCESS, None, stored))
        self._flush()

    def create_topic(self, topic: TopicConfig, done: Created, *, if_absent: bool) -> None:
        change = TopicChange(self.store.topics.version + 1, [topic])
        self.append([change_record(change)], lambda outcome: done(None))


class Broker:
    """A running member, and its clients."""

    def __init__(self, directory: Path) -> None:
        self.store = MessageStore.open(directory, SEGMENT_BYTES)
        self.store.take_mastership()
        self.group = LoneGroup(self.store)
        self.processor = ClientProcessor(self.group)
        self.server = RemotingServer(self.processor, on_close=self.processor.connection_closed)
        self.port = 0
        self._clients: list[RemotingClient] = []

    async def client(self, **options) -> RemotingClient:
        made = RemotingClient(**options)
        self._clients.append(made)
        return await made.connect(f"127.0.0.1:{self.port}")

    async def stop(self) -> None:
        done = asyncio.get_running_loop().create_future()
        self.processor.flush_offsets(lambda: done.set_result(None))
        await done
        for client in self._clients:
            client.close()
        await self.server.stop(0)
        self.processor.close()
        self.store.drop_mastership()
        self.store.close()


@asynccontextmanager
async def running(directory: Path):
    broker = Broker(directory)
    broker.port = await broker.server.start("127.0.0.1", 0)
    try:
        yield broker
    finally:
        await broker.stop()


@pytest.fixture
def start(tmp_path: Path):
    """`async with start() as broker`; a second start finds what the first left."""
    return lambda: running(tmp_path / "store")
