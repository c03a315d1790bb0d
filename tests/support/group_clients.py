"""Clients that read and change broker groups at once, and write down what they were told.

The groups are nobody's: three brokers of each are registered, and one task sends their heartbeats
to every controller, so that no election happens by itself and every change is a client's. A client
asks whichever controller it is connected to, follower or leader, and after an answer that never
came it looks before it changes anything again.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from gantry_chaos.checkers.group import GroupState
from gantry_chaos.history.lines import FaultMark, Line, Outcome, Request, Response, join
from gantry_controller.remoting.dispatcher import LOG_INDEX, NOT_LEADER_REMARK, WITH_INDEX
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.remoting.client import RemotingClient
from support.patience import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CLUSTER = "c"
BROKERS = (1, 2, 3)
ANSWER_WITHIN_S = 0.5
PAUSE_S = 0.02  # after an answer that was none
BEAT_S = 0.25
NOT_LEADER, NOT_ALIVE, BUSY = 2007, 2006, 2


def named(group: str, **more: object) -> dict[str, str]:
    fields = {"clusterName": CLUSTER, "brokerName": group, **more}
    return {name: str(value) for name, value in fields.items()}


class Scribe:
    """The history, in the order in which it happened."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.answered = 0

    def mark(self, fault: str, edge: Literal["start", "end"]) -> None:
        self.lines.append(FaultMark(fault, edge, time.monotonic_ns() // 1_000_000))

    def asks(self, client: str, op: str, group: str, asked: GroupState | None) -> int:
        at_us = time.monotonic_ns() // 1000
        extra: dict[str, object] = {"called_us": at_us}
        if asked is not None:
            extra["asked"] = asked
        self.lines.append(Request(client, op, None, group, at_us // 1000, join(extra)))
        return at_us

    def hears(
        self,
        client: str,
        op: str,
        group: str,
        called_us: int,
        outcome: Outcome,
        told: GroupState | None = None,
        answer: RemotingCommand | None = None,
    ) -> None:
        at_us = time.monotonic_ns() // 1000
        extra: dict[str, object] = {"returned_us": at_us}
        if answer is not None:
            extra["code"] = answer.code
            if LOG_INDEX in (answer.ext or {}):
                extra["index"] = (answer.ext or {})[LOG_INDEX]
        value = None if told is None else str(told)
        took_ms = at_us // 1000 - called_us // 1000
        line = Response(client, op, outcome, value, group, at_us // 1000, took_ms, join(extra))
        self.lines.append(line)
        self.answered += outcome == "SUCCESS"  # a refusal is not in the history that is judged


class Client:
    """One client of a history; ``seed`` decides what it does."""

    def __init__(self, name: str, addresses: Mapping[int, str], scribe: Scribe, seed: int) -> None:
        self.name = name
        self._addresses = list(addresses.values())
        self._scribe = scribe
        self._chance = random.Random(seed)
        self._client: RemotingClient | None = None
        self._known: dict[str, GroupState] = {}  # what it was last told

    async def run(self, groups: list[str]) -> None:
        while True:
            group = self._chance.choice(groups)
            if group not in self._known or self._chance.random() < 0.5:
                await self.get(group)
            elif self._chance.random() < 0.9:
                await self.alter(group)
            else:
                await self.designate(group)

    async def get(self, group: str) -> bool:
        """Whether it was answered."""
        return await self._do("get", group, None, 1004, named(group))

    async def alter(self, group: str) -> None:
        known = self._known[group]
        others = [one for one in BROKERS if one != known.master and self._chance.random() < 0.5]
        wanted = known._replace(members=tuple(sorted((known.master, *others))))
        body = {"syncStateSet": wanted.members, "syncStateSetEpoch": known.set_epoch}
        ext = named(group, masterBrokerId=known.master, masterEpoch=known.epoch)
        await self._do("alter", group, wanted, 1001, ext, json.dumps(body).encode())

    async def designate(self, group: str) -> None:
        known = self._known[group]
        wanted = GroupState(known.epoch, self._chance.choice(BROKERS), 0, ())
        ext = named(group, brokerId=wanted.master, designateElect="true", masterEpoch=known.epoch)
        await self._do("designate", group, wanted, 1002, ext)

    async def _do(
        self,
        op: str,
        group: str,
        asked: GroupState | None,
        code: int,
        ext: dict[str, str],
        body: bytes = b"",
    ) -> bool:
        await self._connect()
        assert self._client is not None
        called_us = self._scribe.asks(self.name, op, group, asked)
        try:
            asking = request(code, {**ext, WITH_INDEX: "1"}, body)
            answer = await self._client.call(asking, ANSWER_WITHIN_S)
        except RemotingError:
            self._client.close()
            return await self._lost(op, group, called_us)
        if answer.code == NOT_LEADER and answer.remark == NOT_LEADER_REMARK:
            self._scribe.hears(self.name, op, group, called_us, "FAILURE", None, answer)
            await self._elsewhere()
            return False
        if answer.code in (NOT_LEADER, BUSY):
            return await self._lost(op, group, called_us)
        if answer.code:
            self._known.pop(group, None)
            self._scribe.hears(self.name, op, group, called_us, "FAILURE", None, answer)
            return True
        told = self._told(op, asked, answer)
        self._known[group] = told
        self._scribe.hears(self.name, op, group, called_us, "SUCCESS", told, answer)
        return True

    async def _lost(self, op: str, group: str, called_us: int) -> bool:
        """Nobody knows whether it took effect: look, and elsewhere, before changing anything."""
        self._scribe.hears(self.name, op, group, called_us, "UNKNOWN")
        self._known.clear()
        await self._elsewhere()
        return False

    async def _elsewhere(self) -> None:
        if self._client is not None:
            self._client.close()
        await asyncio.sleep(PAUSE_S)

    async def _connect(self) -> None:
        while self._client is None or self._client.closed:
            client = RemotingClient()
            try:
                await client.connect(self._chance.choice(self._addresses), ANSWER_WITHIN_S)
            except RemotingError:
                await asyncio.sleep(PAUSE_S)
            else:
                self._client = client

    @staticmethod
    def _told(op: str, asked: GroupState | None, answer: RemotingCommand) -> GroupState:
        ext, body = answer.ext or {}, json.loads(answer.body)
        members = tuple(body["syncStateSet"])
        if op == "alter":
            assert asked is not None
            return GroupState(asked.epoch, asked.master, body["syncStateSetEpoch"], members)
        set_epoch = body["syncStateSetEpoch"] if op == "get" else int(ext["syncStateSetEpoch"])
        return GroupState(int(ext["masterEpoch"]), int(ext["masterBrokerId"]), set_epoch, members)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


class Hearts:
    """Every broker of every group, alive to every controller."""

    def __init__(self, addresses: Iterable[str], groups: list[str]) -> None:
        self._groups = groups
        self._tasks = [asyncio.create_task(self._beat(address)) for address in addresses]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _beat(self, address: str) -> None:
        client = RemotingClient()
        try:
            while True:
                with suppress(RemotingError):
                    if client.closed:
                        client = RemotingClient()
                        await client.connect(address, BEAT_S)
                    for group in self._groups:
                        for broker in BROKERS:
                            client.oneway(request(904, _beat_of(group, broker)))
                await asyncio.sleep(BEAT_S)
        finally:
            client.close()


def _beat_of(group: str, broker: int) -> dict[str, str]:
    return named(
        group,
        brokerId=broker,
        brokerAddr=f"127.0.0.1:{broker}",
        epoch=1,
        maxOffset=1,
        heartbeatTimeoutMills=60_000,
    )


async def founded(address: str, groups: list[str]) -> None:
    """Registers the brokers of every group and lets each have broker 1 as master of them all."""
    client = RemotingClient()
    await client.connect(address)

    async def ask(code: int, ext: dict[str, str], body: bytes = b"") -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (answer := await client.call(request(code, ext, body))).code == NOT_ALIVE:
                await asyncio.sleep(BEAT_S)  # no heartbeat has come since the registration
        assert answer.code == 0, answer

    for group in groups:
        for broker in BROKERS:
            where = f"127.0.0.1:{broker}"
            await ask(1013, named(group, appliedBrokerId=broker, registerCheckCode=f"{where};1"))
            await ask(1003, named(group, brokerId=broker, brokerAddress=where))
        await ask(1002, named(group, brokerId=1))
        body = json.dumps({"syncStateSet": BROKERS, "syncStateSetEpoch": 1}).encode()
        await ask(1001, named(group, masterBrokerId=1, masterEpoch=1), body)
    client.close()
