"""Half messages that nobody has decided: a broker asks, and a client that may know is asked.

A broker asks a producer of the half message's producer group, which is the topic's name for what
came through a proxy (``core.outgoing``). So each proxy says on its connections that it is a
producer of the topics that its clients send to, and passes what a broker asks on to one of them,
over its stream. The client answers with EndTransaction, at any proxy; one that does not answer is
asked again by the broker.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.client import HeartbeatData, ProducerData
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import GantryError
from gantry_protocol.headers.client import CheckTransactionStateRequestHeader
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.records.properties import REAL_TOPIC, UNIQ_KEY, decode_properties
from gantry_protocol.records.record import decode_record

from gantry_proxy.core import handles
from gantry_proxy.core.incoming import message_of
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.core.resources import fill
from gantry_proxy.messages import TelemetryCommand

if TYPE_CHECKING:
    from gantry_protocol.remoting.client import RemotingClient

    from gantry_proxy.calls import Masters
    from gantry_proxy.clients import Clients
    from gantry_proxy.lites import Lites

HEARTBEAT_EVERY_S = 10.0
HEARTBEAT_S = 3.0


class Checking:
    """See the module.

    Args:
        masters: the broker groups.
        clients: whom to ask.
        lites: is told what brokers say of lite topics.

    Attributes:
        asked: questions that were passed on.
        unanswered: questions for which no client was there.
    """

    def __init__(self, masters: Masters, clients: Clients, lites: Lites) -> None:
        self.asked = self.unanswered = 0
        self._name = f"proxy@{secrets.token_hex(8)}"
        self._masters = masters
        self._clients = clients
        self._lites = lites
        self._turn = itertools.count()
        masters.when_asked = self.serve

    def serve(self, client: RemotingClient, asked: RemotingCommand) -> RemotingCommand | None:
        """A broker's question; it waits for no answer."""
        if asked.code == RequestCode.NOTIFY_UNSUBSCRIBE_LITE:
            self._lites.lost(asked)
        if asked.code == RequestCode.CHECK_TRANSACTION_STATE:
            with suppress(GantryError):  # nonsense: nothing is asked
                self._ask(
                    from_ext(CheckTransactionStateRequestHeader, asked.ext), asked.body or b""
                )
        return None

    def _ask(self, header: CheckTransactionStateRequestHeader, body: bytes) -> None:
        record = decode_record(body)
        properties = decode_properties(record.properties)
        topic = properties.get(REAL_TOPIC, record.topic)
        streams = self._clients.senders(topic)
        if not streams:
            self.unanswered += 1
            return
        command = TelemetryCommand()
        wanted = command.recover_orphaned_transaction_command
        wanted.message.CopyFrom(message_of(record, None))
        fill(wanted.message.topic, topic)
        key = properties.get(UNIQ_KEY, header.msg_id or "")
        wanted.transaction_id = handles.pack(
            handles.Transaction(
                header.broker_name or "",
                topic,
                header.tran_state_table_offset,
                header.commit_log_offset,
                key,
                header.transaction_id or key,
            )
        )
        if streams[next(self._turn) % len(streams)].tell(command):
            self.asked += 1
        else:
            self.unanswered += 1

    async def run(self) -> None:
        """Say whose producer this is, until cancelled."""
        while True:
            self._clients.has_topics.clear()
            await self._say()
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_EVERY_S):
                    await self._clients.has_topics.wait()

    async def _say(self) -> None:
        topics = {topic for stream in self._clients.streams.values() for topic in stream.topics}
        places: dict[str, set[str]] = {}
        for topic in topics:
            with suppress(CallRefused):
                for group in await self._masters.route(topic):
                    places.setdefault(group.address, set()).add(topic)
        await asyncio.gather(*(self._beat(*item) for item in places.items()))

    async def _beat(self, address: str, topics: set[str]) -> None:
        data = HeartbeatData(
            self._name, producer_data_set=[ProducerData(topic) for topic in sorted(topics)]
        )
        command = request(RequestCode.HEART_BEAT, body=encode_body(data))
        with suppress(CallRefused):  # the next one comes
            await self._masters.call(address, lambda: command, HEARTBEAT_S)
