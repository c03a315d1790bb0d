"""Whoever has no key changes nothing: every request that could, at every port of every process.

Three controllers, a storage process and a front run as they do in a cluster, with a key. The codes
come from the tables of the processes, so that a new one is asked here by itself. What a broker's
port takes from clients and administrators is open while access is off; it is listed, with the
reason, and a code that is in neither list fails the test. Users are nobody's to change even so.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from gantry_broker.clients.access import USER_CODES
from gantry_broker.ha import wire as ha
from gantry_broker.remote import messages as store
from gantry_broker.replica import messages as replication
from gantry_controller.node.framing import VERSION, Channel, Hello, encode_hello, frame
from gantry_controller.raft.codec import encode
from gantry_controller.raft.messages import VoteRequest
from gantry_controller.requests import ADMIN, REMOTING
from gantry_lab.bench.ports import free_ports
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError
from gantry_protocol.quorum_key import KeyFile, write_key
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.key_requests import show_key
from gantry_protocol.types import BrokerId, Epoch, Index, NodeId, Offset, Term

pytestmark = pytest.mark.asyncio(loop_scope="module")

PATIENCE_S = 300  # five processes start, on a machine that may be busy
CLUSTER, GROUP, TOKEN = "c", "orders", "the admin token"
NEEDY = {code for code, row in REMOTING.items() if row.needs_key}

READ_BY_CLIENTS = {
    "PULL_MESSAGE", "LITE_PULL_MESSAGE", "QUERY_MESSAGE", "QUERY_CONSUMER_OFFSET",
    "SEARCH_OFFSET_BY_TIMESTAMP", "GET_MAX_OFFSET", "GET_MIN_OFFSET", "GET_EARLIEST_MSG_STORETIME",
    "VIEW_MESSAGE_BY_ID", "GET_CONSUMER_LIST_BY_GROUP", "CHECK_CLIENT_CONFIG", "GET_TOPIC_CONFIG",
    "GET_TOPIC_STATS_INFO", "GET_CONSUME_STATS", "GET_ALL_CONSUMER_OFFSET",
    "QUERY_TOPIC_CONSUME_BY_WHO", "QUERY_TOPICS_BY_CONSUMER", "GET_ALL_TOPIC_CONFIG",
    "GET_PRODUCER_CONNECTION_LIST", "GET_BROKER_RUNTIME_INFO", "GET_BROKER_CONFIG",
    "GET_CONSUMER_RUNNING_INFO", "GET_CONSUMER_CONNECTION_LIST",
    "GET_ALL_SUBSCRIPTIONGROUP_CONFIG", "GET_SUBSCRIPTIONGROUP_CONFIG", "GET_ALL_DELAY_OFFSET",
    "VIEW_BROKER_STATS_DATA", "GET_BROKER_CONSUME_STATS", "GET_BROKER_EPOCH_CACHE",
    "GET_BROKER_HA_STATUS", "QUERY_CONSUME_TIME_SPAN", "GET_SYSTEM_TOPIC_LIST_FROM_BROKER",
    "QUERY_CONSUME_QUEUE", "GET_ALL_PRODUCER_INFO", "QUERY_SUBSCRIPTION_BY_CONSUMER",
    "CHECK_ROCKSDB_CQ_WRITE_PROGRESS", "GET_ALL_MESSAGE_REQUEST_MODE",
    "INVOKE_BROKER_TO_GET_CONSUMER_STATUS", "GET_BROKER_LITE_INFO", "GET_PARENT_TOPIC_INFO",
    "GET_LITE_TOPIC_INFO", "GET_LITE_CLIENT_INFO",
}  # fmt: skip
OPEN_ON_BROKERS = {
    # What clients do: while access is off, whoever reaches the port is one.
    "SEND_MESSAGE": "a client",
    "SEND_MESSAGE_V2": "a client",
    "SEND_BATCH_MESSAGE": "a client",
    "SEND_REPLY_MESSAGE": "a client",
    "SEND_REPLY_MESSAGE_V2": "a client",
    "CONSUMER_SEND_MSG_BACK": "a client",
    "END_TRANSACTION": "a client",
    "RECALL_MESSAGE": "a client",
    "UPDATE_CONSUMER_OFFSET": "a client",
    "POP_MESSAGE": "a client",
    "ACK_MESSAGE": "a client",
    "BATCH_ACK_MESSAGE": "a client",
    "CHANGE_MESSAGE_INVISIBLETIME": "a client",
    "NOTIFICATION": "a client",
    "POLLING_INFO": "a client",
    "QUERY_ASSIGNMENT": "a client",
    "POP_LITE_MESSAGE": "a client",
    "LITE_SUBSCRIPTION_CTL": "a client",
    "TRIGGER_LITE_DISPATCH": "changes nothing; messages are looked for once more",
    "HEART_BEAT": "a client; says nothing of brokers",
    "UNREGISTER_CLIENT": "a client",
    "LOCK_BATCH_MQ": "a client",
    "UNLOCK_BATCH_MQ": "a client",
    # What administrators of topics and groups do with RocketMQ's tools: the same.
    "UPDATE_AND_CREATE_TOPIC": "an administrator of topics",
    "DELETE_TOPIC_IN_BROKER": "an administrator of topics",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP": "an administrator of groups",
    "DELETE_SUBSCRIPTIONGROUP": "an administrator of groups",
    "INVOKE_BROKER_TO_RESET_OFFSET": "an administrator of groups",
    "CONSUME_MESSAGE_DIRECTLY": "an administrator of groups",
    "SET_MESSAGE_REQUEST_MODE": "an administrator of groups",
    "UPDATE_AND_CREATE_TOPIC_LIST": "an administrator of topics",
    "UPDATE_AND_CREATE_STATIC_TOPIC": "an administrator of topics",
    "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST": "an administrator of groups",
    "CLONE_GROUP_OFFSET": "an administrator of groups",
    "TRIGGER_DELETE_FILES": "nothing is left to clean",
    "CLEAN_EXPIRED_CONSUMEQUEUE": "nothing is left to clean",
    "CLEAN_UNUSED_TOPIC": "nothing is left to clean",
    "DELETE_EXPIRED_COMMITLOG": "nothing is left to clean",
    "UPDATE_BROKER_CONFIG": "refused whatever it says",
    "UPDATE_AND_GET_GROUP_FORBIDDEN": "changes are refused",
    "EXPORT_ROCKSDB_CONFIG_TO_JSON": "refused whatever it says",
    # What a client says of its own requests; it can only spare itself a copy.
    "GANTRY_PASSED_ON": "of the same connection alone",
    # A hint: the broker asks the controllers and believes them.
    "NOTIFY_BROKER_ROLE_CHANGED": "believed of nobody",
    "GANTRY_CONSUMERS_CHANGED": "a reason to ask the controllers, 20 times a second at most",
}


class Processes:
    """Three controllers, a broker with a store port and a front, with one key."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = KeyFile(write_key(directory / "quorum-key"))
        self.running: list[asyncio.subprocess.Process] = []
        ports = free_ports(18)
        self.controllers = [ports[4 * n : 4 * n + 4] for n in range(3)]
        self.remoting, self.ha, self.http, self.store, self.front, self.front_http = ports[12:]
        self.session: aiohttp.ClientSession

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Processes]:
        (self.directory / "token").write_text(TOKEN)
        timeout = aiohttp.ClientTimeout(total=5)
        async with aiohttp.ClientSession(timeout=timeout) as self.session:
            try:
                await self._start()
                async with asyncio.timeout(PATIENCE_S):
                    await self._settle()
                yield self
            finally:
                for process in self.running:
                    process.kill()
                    await process.wait()

    async def _start(self) -> None:
        peers = ",".join(
            f"{n}=127.0.0.1:{raft}:{remoting}:{http}"
            for n, (raft, remoting, http, _) in enumerate(self.controllers, start=1)
        )
        for n, (raft, remoting, http, names) in enumerate(self.controllers, start=1):
            await self._spawn(
                "controller", f"c-{n - 1}", PEERS=peers, CLUSTER_UID="uid", RAFT_PORT=raft,
                REMOTING_PORT=remoting, HTTP_PORT=http, NAMESERVER_PORT=names,
                ADMIN_TOKEN_FILE=self.directory / "token",
            )  # fmt: skip
        await self._spawn(
            "broker", "stored", GROUP=GROUP, CLUSTER=CLUSTER, REMOTING_PORT=self.remoting,
            HA_PORT=self.ha, HTTP_PORT=self.http, STORE_PORT=self.store,
            CONTROLLERS=",".join(f"127.0.0.1:{ports[1]}" for ports in self.controllers),
        )  # fmt: skip
        await self._spawn(
            "front", "front", CLUSTER=CLUSTER, FIRST_PORT=self.front, HTTP_PORT=self.front_http,
            STORE_PORT=self.store,
            CONTROLLERS=",".join(f"127.0.0.1:{ports[1]}" for ports in self.controllers),
        )  # fmt: skip

    async def _spawn(self, command: str, name: str, **settings: object) -> None:
        environment = {key: value for key, value in os.environ.items() if "GANTRY" not in key}
        environment |= {f"GANTRY_{key}": str(value) for key, value in settings.items()}
        environment["GANTRY_NAME"] = name
        environment["GANTRY_DATA_DIR"] = str(self.directory / name)
        environment["GANTRY_QUORUM_KEY_FILE"] = str(self.key.file)
        with (self.directory / f"{name}.log").open("ab") as log:
            self.running.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "gantry_cli", command), env=environment, stderr=log
                )
            )

    async def _settle(self) -> None:
        """The group is declared, has a master, and clients are served through the front."""
        wish = {"uid": "u", "replicas": 1, "minInSyncReplicas": 1}
        path = f"/v1/groups/{CLUSTER}/{GROUP}"
        while not await self._ok("PUT", path, wish):
            await asyncio.sleep(0.05)
        while not await self._ok("GET", "/readyz", port=self.front_http):
            await asyncio.sleep(0.05)
        header = {
            "topic": "t", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG",
        }  # fmt: skip
        while (await ask(self.front, request(17, header))).code != 0:
            await asyncio.sleep(0.05)

    async def _ok(
        self, method: str, path: str, body: object = None, *, port: int | None = None
    ) -> bool:
        ports = [one[2] for one in self.controllers] if port is None else [port]
        headers = {"Authorization": f"Bearer {TOKEN}"}
        for one in ports:
            try:
                async with self.session.request(
                    method, f"http://127.0.0.1:{one}{path}", json=body, headers=headers
                ) as answer:
                    if answer.status == 200:
                        return True
            except aiohttp.ClientError:
                continue
        return False

    async def group(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                for ports in self.controllers:
                    async with self.session.get(
                        f"http://127.0.0.1:{ports[2]}/v1/groups/{CLUSTER}/{GROUP}", headers=headers
                    ) as answer:
                        if answer.status == 200:
                            found: dict[str, Any] = await answer.json()
                            return found

    async def state(self) -> object:
        """What the quorum holds of groups, topics and names, and how its parts are set."""
        group = await self.group()
        (member,) = group["members"]
        names = self.controllers[0][3]
        told = [
            (await ask(names, request(code, {"namespace": "n", "topic": "t"}))).body
            for code in (106, 206, 219, 105, 319)
        ]
        config = await ask(self.controllers[0][1], request(1010))
        info = await ask(self.controllers[0][1], request(1004, {"brokerName": GROUP}))
        kept = {key: (info.ext or {}).get(key) for key in ("masterBrokerId", "masterEpoch")}
        return member["brokerId"], member["incarnation"], kept, info.body, told, config.body


async def ask(port: int, command: RemotingCommand) -> RemotingCommand:
    """Of whoever listens there, on a connection of its own; again while nobody answers."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            client = RemotingClient()
            try:
                await client.connect(f"127.0.0.1:{port}")
                return await client.call(command)
            except RemotingError:
                await asyncio.sleep(0.05)
            finally:
                client.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def processes(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Processes]:
    async with Processes(tmp_path_factory.mktemp("processes")).run() as made:
        yield made


def harmful(group: dict[str, Any]) -> dict[str, str]:
    """One header with which each request would do harm, if it were served."""
    (member,) = group["members"]
    return {
        "clusterName": CLUSTER, "brokerName": GROUP, "brokerId": str(member["brokerId"]),
        "brokerAddr": "127.0.0.1:1", "brokerAddress": "127.0.0.1:1", "haServerAddr": "127.0.0.1:2",
        "incarnation": "forged", "masterBrokerId": str(member["brokerId"]), "masterEpoch": "1",
        "designateElect": "false", "appliedBrokerId": "2", "registerCheckCode": "forged;1",
        "isCleanLivingBroker": "true",
        "gantryLiving": f"{member['brokerId']}={member['incarnation']}",
        "topic": "forged", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG",
        "namespace": "n", "key": "k", "value": "v", "groupName": "forged",
        "epoch": "99", "maxOffset": "99", "heartbeatTimeoutMills": "1000", "lastEpoch": "0",
        "AccessKey": "gantry", "Signature": "forged", "gantryForwarded": "1",
    }  # fmt: skip


async def test_no_request_without_the_key_changes_the_quorum(processes: Processes) -> None:
    before = await processes.state()
    ext = harmful(await processes.group())
    bodies = (b"", b'{"syncStateSet":[1],"syncStateSetEpoch":1}', b"notifyBrokerRoleChanged=false")
    asked = 0
    for _, remoting, _, names in processes.controllers:
        for code in sorted(NEEDY):
            for body in bodies:
                asked += 1
                answer = await ask(remoting, request(code, ext, body))
                assert answer.code == ResponseCode.NO_PERMISSION, (code.name, answer)
                answer = await ask(names, request(code, ext, body))
                served = REMOTING[code].named and code != RequestCode.BROKER_HEARTBEAT
                expected = "NO_PERMISSION" if served else "REQUEST_CODE_NOT_SUPPORTED"
                assert answer.code == ResponseCode[expected], (code.name, answer)
    assert asked >= 3 * 3 * 20
    assert await processes.state() == before

    with_key = await RemotingClient().connect(f"127.0.0.1:{processes.controllers[0][1]}")
    await show_key(with_key, processes.key)
    answer = await with_key.call(request(100, {"namespace": "n", "key": "k", "value": "v"}))
    assert answer.code == ResponseCode.SUCCESS, "the same request is served to who has the key"
    with_key.close()
    assert await processes.state() != before, "and such a change would have been noticed"


async def test_a_brokers_port_takes_no_orders_of_controllers(processes: Processes) -> None:
    before = await processes.state()
    ext = {**harmful(await processes.group()), "masterEpoch": "99", "syncStateSetEpoch": "99"}
    ext["masterAddress"] = "127.0.0.1:1"
    body = b'{"syncStateSet":[1],"syncStateSetEpoch":99}'
    served = set()
    for port in (processes.front, processes.remoting):
        for code in RequestCode:
            if code.name in READ_BY_CLIENTS:
                continue
            # Requests of clients get a header they cannot read: they are open, not to be served.
            is_open = (
                code.name in OPEN_ON_BROKERS and code != RequestCode.NOTIFY_BROKER_ROLE_CHANGED
            )
            answer = await ask(
                port, request(code, {} if is_open else ext, b"" if is_open else body)
            )
            if code in USER_CODES:
                assert answer.code == ResponseCode.NO_PERMISSION, (code.name, answer)
            elif answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                served.add(code.name)
    assert served - OPEN_ON_BROKERS.keys() == set(), "new here: open to everybody, or not?"
    assert not served & {code.name for code in NEEDY} - OPEN_ON_BROKERS.keys()
    assert await processes.state() == before
    async with processes.session.get(f"http://127.0.0.1:{processes.http}/status") as answer:
        status = await answer.json()
    assert (status["role"], status["epoch"]) == ("master", 1)


async def test_the_ports_of_members_say_nothing_to_strangers(processes: Processes) -> None:
    before = await processes.state()
    vote = VoteRequest(NodeId(2), NodeId(1), Term(99), Index(10**6), Term(98), pre=False)
    hello = replication.Hello(
        epoch=Epoch(1),
        broker_id=BrokerId(1),
        incarnation="forged",
        log_start=Offset(0),
        end=Offset(0),
        lineage=(),
    )
    caller = ha.Caller(CLUSTER, GROUP, "u")
    strange = [
        (processes.controllers[0][0], raft_hello(Channel.MESSAGES) + frame(encode(vote))),
        (processes.controllers[0][0], raft_hello(Channel.SNAPSHOT) + struct.pack(">I", 0)),
        (processes.ha, b"".join(ha.encode(hello, caller))),
        (processes.store, store.encode(store.Hello(CLUSTER, GROUP, Epoch(0), "127.0.0.1:1"))),
    ]
    for port, data in strange:
        for sent in (data, b"GKEY\x01" + bytes(32) + bytes(32) + data):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            async with asyncio.timeout(PATIENCE_S):
                try:
                    heard = await reader.read()
                except ConnectionResetError:
                    heard = b""
            writer.close()
            if sent is data:
                assert heard == b"", port
            else:
                assert heard[:5] == b"GKEY\x01", port
                assert heard[37:] == b"\x00", port
    assert await processes.state() == before
    async with processes.session.get(
        f"http://127.0.0.1:{processes.controllers[0][2]}/v1/quorum",
        headers={"Authorization": f"Bearer {TOKEN}"},
    ) as answer:
        assert (await answer.json())["term"] < 99


def raft_hello(channel: Channel) -> bytes:
    """With the cluster uid, which anybody may ask for."""
    return encode_hello(Hello(VERSION, NodeId(2), NodeId(1), "uid", "127.0.0.1:1", channel))


async def test_no_http_request_without_the_token_changes_anything(processes: Processes) -> None:
    before = await processes.state()
    routes = sorted(ADMIN)
    for method, path in routes:
        named = {"cluster": CLUSTER, "name": GROUP, "topic": "t", "user": "u", "group": "g"}
        place = path.format(id="1", broker_id="1", **named)
        url = f"http://127.0.0.1:{processes.controllers[0][2]}{place}"
        async with processes.session.request(method, url, json={}) as answer:
            assert answer.status in (401, 403), (method, path, answer.status)
    for port in (processes.http, processes.front_http):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            for path in ("/status", "/metrics", "/livez", "/readyz", f"/status/{GROUP}"):
                url = f"http://127.0.0.1:{port}{path}"
                async with processes.session.request(method, url) as answer:
                    assert answer.status in (404, 405), (method, path)
    assert await processes.state() == before
