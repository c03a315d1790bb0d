"""Users and rules on real brokers and a controller: who is served, and what keeps it so."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from gantry_broker.host.settings import BrokerSettings
from gantry_protocol.bodies.access import ClusterAccess
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.frame import FrameDecoder, encode
from gantry_protocol.proxy_preamble import build_v1
from gantry_protocol.quorum_key import KeyFile, read_keys, write_key
from gantry_protocol.remoting.admission import signed
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.signatures import ACCESS_KEY
from support.broker_cluster import (
    TOPIC,
    BrokerCluster,
    RunningBroker,
    bodies,
    eventually,
    pull_command,
    send_command,
)
from support.loopback_controller import CLUSTER, LoopbackController

OK, DENIED = ResponseCode.SUCCESS, ResponseCode.NO_PERMISSION
CODE = RequestCode
SECRET = "secret-of-shop"
PUB = {"resource": "Topic:orders", "actions": ["Pub", "Sub"], "decision": "Allow"}
GROUP = {"resource": "Group:g", "actions": ["Sub"], "decision": "Allow"}


class KeyedCluster(BrokerCluster):
    """As ``BrokerCluster``, of processes that have a quorum's key."""

    def __init__(self, directory: Path, replicas: int = 3, min_in_sync: int = 2) -> None:
        super().__init__(directory, replicas, min_in_sync)
        self.key = write_key(directory / "key")
        self.controller = LoopbackController(key=KeyFile(self.key))

    def settings(self, number: int) -> BrokerSettings:
        return super().settings(number).model_copy(update={"quorum_key_file": self.key})

    # ---- an administrator

    async def administer(
        self, code: int, body: object = None, user: str = ACCESS_KEY, **ext: str
    ) -> RemotingCommand:
        """Ask the master as ``mqadmin`` does, with the quorum's key, or as a user."""
        client = await self.client(self.master)
        secret = read_keys(self.key)[0] if user == ACCESS_KEY else SECRET.encode()
        data = b"" if body is None else json.dumps(body).encode()
        return await client.call(signed(request(code, ext, data), user, secret))

    async def make_user(self, name: str, *rules: dict[str, Any], kind: str = "Normal") -> None:
        body = {"username": name, "password": SECRET, "userType": kind}
        answer = await self.administer(CODE.AUTH_CREATE_USER, body, username=name)
        assert answer.code == OK, answer
        if rules:
            await self.allow(name, *rules)

    async def allow(self, name: str, *rules: dict[str, Any]) -> None:
        acl = {"subject": f"User:{name}", "policies": [{"entries": list(rules)}]}
        answer = await self.administer(CODE.AUTH_CREATE_ACL, acl, subject=f"User:{name}")
        assert answer.code == OK, answer

    async def turn(self, *, on: bool) -> None:
        """The switch, at the controllers, until all brokers know."""
        client = await RemotingClient().connect(self.controller.address)
        try:
            ext = {"clusterName": CLUSTER, "enabled": "true" if on else "false"}
            turn = signed(request(CODE.GANTRY_SET_ACCESS, ext), ACCESS_KEY, read_keys(self.key)[0])
            assert (await client.call(turn)).code == OK
        finally:
            client.close()
        await self.all_know()

    async def all_know(self) -> None:
        """What the controllers know by now, all brokers do."""

        def holds() -> bool:
            switch = self.controller.machine.state.access[CLUSTER]
            return all(
                users.enabled == switch.enabled and users._index == switch.changed
                for users in (broker.server_access for broker in self.running)
            )

        await eventually(holds, "the brokers know the users")

    @property
    def running(self) -> list[_Known]:
        return [_Known(one) for one in self.brokers.values() if not one.task.done()]


class _Known:
    def __init__(self, broker: RunningBroker) -> None:
        shared = broker.member._shared
        assert shared is not None
        self.server_access = shared.access


def as_user(command: RemotingCommand, user: str = "shop", secret: str = SECRET) -> RemotingCommand:
    return signed(command, user, secret.encode())


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[KeyedCluster]:
    async with KeyedCluster(tmp_path, replicas=1, min_in_sync=1) as made:
        await made.make_user("root", kind="Super")
        await made.make_user("shop", PUB, GROUP)
        await made.turn(on=True)
        yield made


async def said(client: RemotingClient, command: RemotingCommand) -> int:
    return (await client.call(command)).code


async def test_each_dimension_of_a_denial(cluster: KeyedCluster) -> None:
    client = await cluster.client(cluster.master)
    answer = await client.call(as_user(send_command(b"1")))
    assert answer.code == OK, answer
    answer = await client.call(send_command(b"2"))
    assert (answer.code, answer.remark) == (
        DENIED,
        "SEND_MESSAGE_V2 is not signed, and this cluster serves nobody without a user",
    )
    assert await said(client, as_user(send_command(b"3"), secret="another-secret")) == DENIED
    assert await said(client, as_user(send_command(b"4"), user="nobody")) == DENIED
    answer = await client.call(as_user(send_command(b"5", topic="other")))
    assert answer.code == DENIED
    assert answer.remark == "User:shop has no permission for Pub on Topic:other from 127.0.0.1"
    assert await said(client, as_user(request(CODE.GET_BROKER_CONFIG))) == DENIED
    assert await said(client, as_user(request(CODE.GET_BROKER_CONFIG), user="root")) == OK
    altered = as_user(send_command(b"6"))
    altered.body = b"7"
    assert await said(client, altered) == DENIED
    pulled = await client.call(as_user(pull_command(0)))
    assert bodies(pulled) == [b"1"]
    assert await said(client, pull_command(0)) == DENIED


async def test_what_is_asked_of_a_member_itself_needs_a_user(cluster: KeyedCluster) -> None:
    client = await cluster.client(cluster.master)
    for code in (CODE.GET_BROKER_EPOCH_CACHE, CODE.GET_BROKER_HA_STATUS):
        assert await said(client, request(code)) == DENIED
        assert await said(client, as_user(request(code), user="root")) != DENIED


async def test_changes_count_on_connections_that_are_open(cluster: KeyedCluster) -> None:
    client = await cluster.client(cluster.master)

    async def sent() -> int:
        await cluster.all_know()
        return await said(client, as_user(send_command(b"x")))

    assert await sent() == OK
    await cluster.administer(CODE.AUTH_UPDATE_USER, {"userStatus": "disable"}, username="shop")
    assert await sent() == DENIED
    await cluster.administer(CODE.AUTH_UPDATE_USER, {"userStatus": "enable"}, username="shop")
    assert await sent() == OK
    await cluster.allow("shop", {**PUB, "decision": "Deny"})
    assert await sent() == DENIED
    await cluster.allow("shop", PUB)
    assert await sent() == OK
    await cluster.administer(CODE.AUTH_UPDATE_USER, {"password": "another-one"}, username="shop")
    assert await sent() == DENIED
    assert await said(client, as_user(send_command(b"x"), secret="another-one")) == OK
    await cluster.administer(CODE.AUTH_DELETE_USER, username="shop")
    await cluster.all_know()
    assert await said(client, as_user(send_command(b"x"), secret="another-one")) == DENIED
    await cluster.turn(on=False)
    assert await said(client, send_command(b"x")) == OK


async def test_a_rule_counts_from_its_addresses(cluster: KeyedCluster) -> None:
    await cluster.allow("shop", {**PUB, "sourceIps": ["10.7.0.0/16"]})
    await cluster.all_know()
    client = await cluster.client(cluster.master)
    assert await said(client, as_user(send_command(b"x"))) == DENIED
    for source, code in (("10.7.1.2", OK), ("10.8.1.2", DENIED)):
        assert await behind_a_door(cluster.master, source, as_user(send_command(b"x"))) == code


async def behind_a_door(broker: RunningBroker, source: str, command: RemotingCommand) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.member.port)
    writer.write(build_v1((source, 4711), ("10.0.0.1", 10911)) + encode(command))
    decoder, found = FrameDecoder(expect_preamble=False), []
    while not found:
        data = await asyncio.wait_for(reader.read(65536), 10)
        assert data, "the broker ended the connection"
        found = decoder.feed(data)
    writer.close()
    return found[0].code


async def test_users_are_changed_by_super_users_and_the_key_alone(cluster: KeyedCluster) -> None:
    wish = {"username": "new", "password": SECRET, "userType": "Super"}
    for on in (True, False):  # also while access is off: nobody makes a user for later
        await cluster.turn(on=on)
        client = await cluster.client(cluster.master)
        body = json.dumps(wish).encode()
        command = request(CODE.AUTH_CREATE_USER, {"username": "new"}, body)
        assert await said(client, command) == DENIED
        answer = await cluster.administer(CODE.AUTH_CREATE_USER, wish, "shop", username="new")
        assert answer.code == DENIED
        answer = await cluster.administer(CODE.AUTH_LIST_USER, None, "shop")
        assert answer.code == DENIED
    answer = await cluster.administer(CODE.AUTH_CREATE_USER, wish, "root", username="new")
    assert answer.code == OK
    answer = await cluster.administer(CODE.AUTH_LIST_USER, None, "root")
    assert [user["username"] for user in json.loads(answer.body)] == ["new", "root", "shop"]
    assert SECRET.encode() not in answer.body
    answer = await cluster.administer(CODE.AUTH_GET_ACL, None, "root", subject="User:shop")
    assert json.loads(answer.body)["subject"] == "User:shop"


async def test_messages_of_other_topics_are_not_sent_back_into_ones_own_group(
    cluster: KeyedCluster,
) -> None:
    client = await cluster.client(cluster.master)
    root = as_user(send_command(b"theirs", topic="secret"), user="root")
    stored = await client.call(root)
    assert stored.code == OK
    offset = str(int((stored.ext or {})["msgId"][-16:], 16))
    ext = {"offset": offset, "group": "g", "delayLevel": "1", "originTopic": TOPIC}
    answer = await client.call(as_user(request(CODE.CONSUMER_SEND_MSG_BACK, ext)))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "look message by offset failed" in (answer.remark or "")
    answer = await client.call(as_user(request(CODE.CONSUMER_SEND_MSG_BACK, ext), user="root"))
    assert answer.code == OK
    mine = await client.call(as_user(send_command(b"mine")))
    ext["offset"] = str(int((mine.ext or {})["msgId"][-16:], 16))
    assert await said(client, as_user(request(CODE.CONSUMER_SEND_MSG_BACK, ext))) == OK


async def test_a_failover_keeps_users_and_so_does_a_quorum_that_is_away(tmp_path: Path) -> None:
    async with KeyedCluster(tmp_path) as cluster:
        await cluster.make_user("root", kind="Super")
        await cluster.make_user("shop", PUB)
        await cluster.turn(on=True)
        replica = cluster.replicas_of()[0]
        through = await cluster.client(replica)  # passed on with its signature
        assert await said(through, as_user(send_command(b"1"))) == OK
        assert await said(through, send_command(b"2")) == DENIED
        first = cluster.master
        number = cluster.number_of(first)
        await first.abort()
        del cluster.brokers[number]
        await eventually(lambda: any(b.is_master for b in cluster.brokers.values()), "a master")
        client = await cluster.client(cluster.master)
        assert await said(client, send_command(b"3")) == DENIED
        await eventually(lambda: cluster.master.group.writes.accepting() is None, "writes")
        assert await said(client, as_user(send_command(b"4"))) == OK
        await cluster.controller.server.stop(0)
        assert await said(client, as_user(send_command(b"5"))) == OK
        assert await said(client, send_command(b"6")) == DENIED


async def test_nobody_is_served_before_it_is_known_who_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controllers' answers about users are kept back; requests wait, and are refused then."""
    async with KeyedCluster(tmp_path, replicas=1, min_in_sync=1) as cluster:
        shared = cluster.master.member._shared
        assert shared is not None
        shared.access.is_known = False
        for changed in shared.access._listeners:
            changed()
        monkeypatch.setattr(shared.access, "_take", lambda told: None)
        client = await cluster.client(cluster.master)
        assert await said(client, send_command(b"1")) == ResponseCode.SERVICE_NOT_AVAILABLE
        waiting = asyncio.ensure_future(
            said(await cluster.client(cluster.master), send_command(b"2"))
        )
        await asyncio.sleep(0.05)
        assert not waiting.done()
        monkeypatch.undo()
        shared.access._take(ClusterAccess(0, is_news=True))
        assert await waiting == OK
