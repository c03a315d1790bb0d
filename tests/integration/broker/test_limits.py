"""A real broker with a disk that is nearly full: messages are refused, the rest goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.remoting.client import RemotingClient
from support.broker_cluster import pull_command, send_command
from support.broker_processes import Group


class FullGroup(Group):
    """On disks that count as nearly full at any share, once anything is in use."""

    env = {  # noqa: RUF012 - replaced, never changed
        "GANTRY_DISK_REFUSE_PERCENT": "0.0002",
        "GANTRY_DISK_TAKE_PERCENT": "0.0001",
        "GANTRY_DISK_SPARE_BYTES": str(1 << 60),
    }


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[FullGroup]:
    made = FullGroup(tmp_path)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


async def test_only_messages_are_refused(full: FullGroup) -> None:
    client = await RemotingClient().connect(f"{full.master_ip}:10911", 5)

    async def ask(command: RemotingCommand) -> RemotingCommand:
        return await client.call(command, 5)

    try:
        refused = await ask(send_command(b"x"))
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "nearly full" in (refused.remark or "")
        create = {"topic": "orders", "defaultTopic": "TBW102", "readQueueNums": "1"}
        create |= {"writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG"}
        create |= {"order": "false", "topicSysFlag": "0"}
        assert (await ask(request(RequestCode.UPDATE_AND_CREATE_TOPIC, create))).code == 0
        pulled = await ask(pull_command(0))
        assert pulled.code == ResponseCode.PULL_NOT_FOUND
        place = {"consumerGroup": "g", "topic": "orders", "queueId": "0"}
        commit = request(RequestCode.UPDATE_CONSUMER_OFFSET, {**place, "commitOffset": "0"})
        assert (await ask(commit)).code == 0
        asked = await ask(request(RequestCode.QUERY_CONSUMER_OFFSET, place))
        assert (asked.ext or {})["offset"] == "0"
    finally:
        client.close()
