"""Whom the load goes to: a group of ours, or any RocketMQ broker.

A broker that somebody else runs is named by its own address or by that of a name server: a name
server answers 106 with the brokers it knows, a broker refuses it. Topics are made as `mqadmin` does
it, by asking the master (17). Whose processors are measured is known for our own processes only.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from gantry_cli.client.routes import Queue
from gantry_protocol.bodies import ClusterInfo, decode_body
from gantry_protocol.bodies.route import MASTER_ID, PERM_READ, PERM_WRITE
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError, WireError
from gantry_protocol.headers.brokeradmin import CreateTopicRequestHeader
from gantry_protocol.headers.codec import to_ext

from gantry_lab.bench.broker.frames import DEFAULT_TOPIC
from gantry_lab.bench.senders import QUEUES, TOPIC_RETRY_S, make_topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gantry_cli.client.session import Session

    from gantry_lab.bench.members import Members

ROLES = "master", "replicas"
CALL_TIMEOUT_S = 3.0
ROUTE_PATIENCE_S = 90.0  # a Java broker tells its name servers of a topic within half a minute


class Brokers(Protocol):
    """Brokers under load."""

    roles: tuple[str, str]
    """Of the one whose CPU counts first, and of the others."""

    async def queues(self, topic: str) -> Sequence[Queue]:
        """The queues of `topic`, which is made for it."""
        ...

    def cpu_s(self) -> tuple[float, float] | None:
        """CPU seconds used so far by the master and by the others; None if that is not known."""
        ...


class ProcessGroup:
    """A group of bare processes."""

    roles = ROLES

    def __init__(self, members: Members, client: Session) -> None:
        self._members = members
        self._client = client

    async def queues(self, topic: str) -> Sequence[Queue]:
        """See `Brokers`."""
        await make_topic(self._client, topic)
        return (await self._client.routes.fetch(topic)).writable

    def cpu_s(self) -> tuple[float, float]:
        """See `Brokers`; who is the master is as of the last time the group was settled."""
        return self._members.cpu_s()


class AgainstBrokers:
    """Brokers that somebody else started."""

    roles = ROLES

    def __init__(self, address: str, client: Session) -> None:
        self._address = address
        self._client = client

    async def queues(self, topic: str) -> Sequence[Queue]:
        """See `Brokers`.

        Raises:
            GantryError: nobody answers there, or the topic cannot be made.
        """
        masters = await self._masters()
        if masters is None:
            await self._create(self._address, topic)
            return [Queue("", number, self._address) for number in range(QUEUES)]
        for address in masters:
            await self._create(address, topic)
        deadline = time.monotonic() + ROUTE_PATIENCE_S
        while time.monotonic() < deadline:
            try:
                found = (await self._client.routes.fetch(topic)).writable
            except (GantryError, WireError):
                found = ()
            if found:
                return found
            await asyncio.sleep(TOPIC_RETRY_S)
        raise GantryError(f"The name server {self._address} has no route to {topic}.")

    def cpu_s(self) -> tuple[float, float] | None:
        """Somebody else's processes are not looked for."""
        return None

    async def _masters(self) -> list[str] | None:
        """The masters that a name server knows; None if a broker answers at the address.

        A broker that has just been started is there some seconds before its name servers know it.
        """
        deadline = time.monotonic() + ROUTE_PATIENCE_S
        while time.monotonic() < deadline:
            answer = await self._client.calls.call(
                self._address, request(RequestCode.GET_BROKER_CLUSTER_INFO), CALL_TIMEOUT_S
            )
            if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            if answer.code != ResponseCode.SUCCESS:
                raise GantryError(
                    f"{self._address} answered {answer.code} when asked for its brokers."
                )
            found = [
                data.broker_addrs[MASTER_ID]
                for data in decode_body(ClusterInfo, answer.body).broker_addr_table.values()
                if MASTER_ID in data.broker_addrs
            ]
            if found:
                return found
            await asyncio.sleep(TOPIC_RETRY_S)
        raise GantryError(f"The name server {self._address} knows no master.")

    async def _create(self, address: str, topic: str) -> None:
        header = CreateTopicRequestHeader(
            topic=topic,
            read_queue_nums=QUEUES,
            write_queue_nums=QUEUES,
            perm=PERM_READ | PERM_WRITE,
            default_topic=DEFAULT_TOPIC,
        )
        command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, to_ext(header))
        answer = await self._client.calls.call(address, command, CALL_TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise GantryError(
                f"The broker {address} did not make the topic {topic}: {answer.remark} "
                f"(code {answer.code})."
            )
