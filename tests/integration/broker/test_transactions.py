"""Transactions on three processes whose master is killed in the midst of them."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.records import decode_records, find_property
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import TOPIC, eventually, pull_command, send_command
from support.broker_processes import Group
from support.transactions import (
    COMMIT,
    HEARTBEAT,
    ROLLBACK,
    UNKNOWN,
    claim,
    claim_checked,
    half,
)

COUNT = 40
SOON = {"GANTRY_TRANSACTION_TIMEOUT_S": "1", "GANTRY_TRANSACTION_CHECK_INTERVAL_S": "1"}


def _key(number: int) -> str:
    return f"{number:032}"


def _texts(ext: dict[str, object]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in ext.items()
    }


class Producer:
    """An application with an opinion on each transaction; it says so when it is asked."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.checks = 0
        self.client: RemotingClient | None = None

    @staticmethod
    def wanted(number: int) -> int:
        return COMMIT if number % 2 else ROLLBACK

    async def connect(self) -> None:
        """To whichever process serves."""
        while True:
            for ip, process in self.group.processes.items():
                if process.process.poll() is not None:
                    continue
                try:
                    client = RemotingClient(on_request=self._asked)
                    await client.connect(f"{ip}:10911", 0.5)
                    beat = request(RequestCode.HEART_BEAT, None, HEARTBEAT)
                    if (await client.call(beat, 3)).code == 0:
                        self.client = client
                        return
                except RemotingError:
                    pass
            await asyncio.sleep(0.05)

    def _asked(self, client: RemotingClient, check: RemotingCommand) -> None:
        if check.code != RequestCode.CHECK_TRANSACTION_STATE:
            return
        self.checks += 1
        (record,) = decode_records(check.body)
        number = int(find_property(record.properties.encode(), "UNIQ_KEY") or "")
        ext = _texts(claim_checked(check, self.wanted(number)))
        client.oneway(request(RequestCode.END_TRANSACTION, ext, oneway=True))

    async def call(self, command: RemotingCommand) -> RemotingCommand:
        assert self.client is not None
        return await self.client.call(command, 5)

    async def begin(self, number: int) -> RemotingCommand:
        ext = half(_key(number), topic=TOPIC, queue_id=0)
        sent = await self.call(request(RequestCode.SEND_MESSAGE_V2, _texts(ext), b"%d" % number))
        assert sent.code == 0, sent.remark
        return sent

    async def end(self, sent: RemotingCommand, outcome: int) -> RemotingCommand:
        return await self.call(request(RequestCode.END_TRANSACTION, _texts(claim(sent, outcome))))

    async def consumed(self) -> Counter[int]:
        """What consumers get; the first message of the topic was no transaction."""
        found: Counter[int] = Counter()
        at = 1
        while True:
            answer = await self.call(pull_command(at))
            if answer.code != ResponseCode.SUCCESS:
                return found
            records = decode_records(answer.body)
            found.update(int(record.body) for record in records)
            at += len(records)


async def test_transactions_end_once_though_masters_are_killed(tmp_path: Path) -> None:
    group = Group(tmp_path)
    group.env = SOON
    producer = Producer(group)
    await group.start()
    try:
        await producer.connect()
        assert (await producer.call(send_command(b"first"))).code == 0
        sent = [await producer.begin(number) for number in range(COUNT)]
        for number in range(10):  # acknowledged before the kill
            assert (await producer.end(sent[number], producer.wanted(number))).code == 0
        for number in range(10, 15):
            assert (await producer.end(sent[number], UNKNOWN)).code == 0
        assert producer.client is not None
        for number in range(15, 25):  # under way when it happens
            ext = _texts(claim(sent[number], producer.wanted(number)))
            producer.client.oneway(request(RequestCode.END_TRANSACTION, ext, oneway=True))
        await asyncio.sleep(0.002)
        killed = group.processes[group.master_ip]
        killed.process.kill()
        killed.process.wait()
        producer.client.close()
        await producer.connect()
        for number in range(10):  # the other way round: the first outcome holds
            answer = await producer.end(sent[number], COMMIT + ROLLBACK - producer.wanted(number))
            assert answer.code == 0, answer.remark
            assert answer.remark is not None
        wanted = Counter(number for number in range(COUNT) if number % 2)
        found: Counter[int] = Counter()
        for _ in range(100):
            found = await producer.consumed()
            if found == wanted:
                break
            await asyncio.sleep(0.2)
        assert found == wanted
        assert producer.checks > 0
        await asyncio.sleep(2.5)  # two more rounds must not change anything
        checks = producer.checks
        assert await producer.consumed() == wanted
        await eventually(lambda: producer.checks == checks, "nobody is asked any more")
    finally:
        if producer.client is not None:
            producer.client.close()
        await group.stop()
