"""Somebody who writes another configuration file for brokers that run, and clients who feel it.

All brokers read one file. Among faults it is written again and again, sometimes so that no broker
could be started with it. In peace each setting is changed by itself, and clients find that it
holds: at once after each broker has said so, after a wrong file, and after all brokers have begun
anew. A broker that was given a wrong file goes on with the settings before, and says why.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from gantry_broker.clients.quotas import BURST_S
from gantry_broker.clients.throttle import SEND_PATIENCE_S
from gantry_broker.host.settings import BrokerSettings
from gantry_cli.client.session import session
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.client import HeartbeatData, ProducerData
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.process.config import fingerprint, load_settings
from gantry_protocol.process.live_settings import SettingsFile
from gantry_protocol.records import BatchMessage, encode_batch
from gantry_protocol.records.properties import UNIQ_KEY
from sim.kernel.world import SECOND, Violation
from sim.product.cluster import CLUSTER, GROUP, Cluster, http
from sim.product.line import Line, send_ext, topic_ext
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.remoting.client import RemotingClient
    from sim.product.cluster import Node
    from sim.product.workload import Told

TOPIC = "slow%tuned"
PRODUCERS = "tuned"
GREETING = (
    RequestCode.HEART_BEAT,
    encode_body(HeartbeatData("tuned", [ProducerData(PRODUCERS)], [])),
)
LIMITS = (10, 40, 100)  # of messages in a batch
ALWAYS, NEVER = min(LIMITS), max(LIMITS) + 1  # messages that every limit takes, or none
PER_SECOND = 20
COUNTED_S = 3.0
PAUSE_S = 3.0  # at most, between two files
TOLD_S = 30.0  # within which every broker has said what became of a file
WITHIN_S = 4.0
CALM: dict[str, Any] = {
    "disk_spare_bytes": 0,
    "max_batch_messages": ALWAYS,
    "transaction_timeout_s": 86_400.0,
    "transaction_check_interval_s": 0.5,
}
FULL = {"disk_refuse_percent": 0.01, "disk_take_percent": 0.0, "disk_spare_bytes": 1 << 40}
WRONG = (
    "max_batch_messages = 0\n",
    "max_batch_messages = \n",
    "no_such_setting = 1\n",
    'quotas = "[]"\n',
    "disk_refuse_percent = 10.0\ndisk_take_percent = 20.0\n",
    "broker = 1\n",
)
QUOTAS = json.dumps({"tenants": {"slow": {"sendsPerSecond": PER_SECOND}}})


class TunedCluster(Cluster):
    """Its brokers read a configuration file, which may change while they run."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._file = self.root / "broker.toml"
        self.configure(text_of(CALM))

    def configure(self, text: str) -> str:
        """Write the file, as a volume of Kubernetes changes; what it is known by."""
        new = self.root / "broker.toml.new"
        new.write_text(text)
        new.rename(self._file)
        return fingerprint(text.encode())

    def settings_of(
        self, flags: dict[str, Any], more: dict[str, Any]
    ) -> tuple[BrokerSettings, SettingsFile[BrokerSettings] | None]:
        """Raises ConfigError: the file cannot be meant."""
        file = SettingsFile(BrokerSettings, self._file, flags, "broker")
        named = {**flags, "config": self._file}
        return load_settings(BrokerSettings, named, {}, table="broker"), file


def text_of(settings: dict[str, Any]) -> str:
    """A file, half of it in the table of the broker."""
    lines = [f"{name} = {json.dumps(value)}\n" for name, value in sorted(settings.items())]
    half = len(lines) // 2
    return "".join([*lines[:half], "[broker]\n", *lines[half:]])


class Tuner(Clients):
    """See the module.

    Args:
        cluster: where.
        watch: is told of every acknowledgement.
    """

    unsettled = "settings that changed do not hold, or not for everybody"
    _cluster: TunedCluster

    def __init__(self, cluster: TunedCluster, watch: Told) -> None:
        super().__init__(cluster)
        self._watch = watch
        self._settings = dict(CALM)
        self._checks: list[str] = []  # transactions that the producer was asked for
        self._applied = ""

    def start(self) -> None:
        """Begin."""
        self._busy += 2
        self._cluster.client("tuner", self._tune).boot()
        self._cluster.client("tuned-sender", self._send).boot()

    # ---- among faults

    async def _send(self, node: Node) -> None:
        """Batches that every setting takes, and some that none does."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            await line.insist(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_ext(TOPIC))
            while not self._cluster.is_at_peace:
                size = rng.choice([1, ALWAYS, *LIMITS, NEVER])
                answer = await self._batch(line, size, rng)
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    if size >= NEVER:
                        raise Violation(f"a batch of {size} is taken: {answer}")
                elif answer is not None and answer.code == ResponseCode.MESSAGE_ILLEGAL:
                    self._cluster.world.count("tuned-refused")
                    if size <= ALWAYS:
                        raise Violation(f"a batch of {size} is refused: {answer}")
                await asyncio.sleep(rng.random() * 0.3)
        self._busy -= 1

    async def _batch(self, line: Line, size: int, rng: Random) -> RemotingCommand | None:
        keys = [f"{rng.getrandbits(128):032X}" for _ in range(size)]
        body = encode_batch([BatchMessage(b"x", f"{UNIQ_KEY}\x01{key}\x02") for key in keys])
        ext = {**send_ext(TOPIC, f"{rng.getrandbits(128):032X}"), "m": True}
        answer = await line.ask(RequestCode.SEND_BATCH_MESSAGE, ext, body, WITHIN_S)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            ids = (answer.ext or {})["msgId"].split(",")
            if len(ids) != size:
                raise Violation(f"a batch of {size} is acknowledged at {ids}")
            for key, offset_id in zip(keys, ids, strict=True):
                self._watch.acknowledged(key, offset_id)
        return answer

    async def _tune(self, node: Node) -> None:
        cluster, rng = self._cluster, self._cluster.world.stream(f"load/{node.name}")
        while not cluster.is_set_up:
            await asyncio.sleep(0.1)
        while not cluster.is_at_peace:
            self._write(self._drawn(rng))
            cluster.world.count("tuned")
            await asyncio.sleep(rng.random() * PAUSE_S)
        self._write({})
        while not cluster.is_whole:
            await asyncio.sleep(0.1)
        async with session(cluster.name_servers) as client:
            line = Line(client, on_request=self._checked, greeting=GREETING)
            stories = [self._limit, self._wrong, self._full, self._quota, self._transact]
            for story in (*rng.sample(stories, len(stories)), self._anew):
                await self._told()
                await story(line, rng)
                self._cluster.world.count(f"tuned: {story.__name__}")
                self._write({})
            await self._told()
        self._busy -= 1

    def _drawn(self, rng: Random) -> dict[str, Any] | str:
        """What a file says among faults; a text where it is wrong."""
        if rng.random() < 0.25:
            return rng.choice(WRONG)
        drawn = {
            "access_log": rng.choice(["denied", "all"]),
            "disk_refuse_percent": rng.choice([80.0, 90.0]),
            "drain_grace_s": rng.choice([0.0, 60.0]),
            "max_batch_messages": rng.choice(LIMITS),
            "offsets_kept_hours": rng.choice([0, 100]),
            "quotas": QUOTAS,
            "retention_bytes": rng.choice([1 << 30, 1 << 31]),
            "transaction_check_interval_s": rng.choice([0.2, 5.0]),
            "transaction_check_max": rng.choice([1, 15]),
        }
        return {name: value for name, value in drawn.items() if rng.random() < 0.5}

    # ---- in peace

    def _write(self, wished: dict[str, Any] | str) -> None:
        if isinstance(wished, str):
            self._cluster.configure(text_of(CALM) + wished)
            return
        self._settings = CALM | wished
        self._applied = self._cluster.configure(text_of(self._settings))

    async def _told(self, *, is_wrong: bool = False) -> None:
        """Until all brokers say that the last good file holds, and what is wrong with a newer one.

        Raises Violation: they do not.
        """
        for _ in range(int(TOLD_S / 0.2)):
            members = await self._members()
            if len(members) == self._cluster.replicas and all(
                member.get("settings") == self._applied
                and bool(member.get("settingsRefused")) is is_wrong
                for member in members
            ):
                return
            await asyncio.sleep(0.2)
        raise Violation(f"{self._applied} ({is_wrong}) is not what holds: {await self._members()}")

    async def _members(self) -> list[dict[str, Any]]:
        """What the controllers were told."""
        for node in self._cluster.controllers:
            try:
                async with asyncio.timeout(WITHIN_S):
                    path = f"/v1/groups/{CLUSTER}/{GROUP}"
                    status, text = await http(node.machine.address, "GET", path)
            except (OSError, EOFError):  # TimeoutError is one
                continue
            if status == 200:
                return list(json.loads(text)["members"])
        return []

    async def _limit(self, line: Line, rng: Random) -> None:
        """Raises Violation: a batch of another size is taken, or one of this size is not."""
        most = rng.choice(LIMITS)
        self._write({"max_batch_messages": most})
        await self._told()
        await self._holds(line, rng, most)

    async def _holds(self, line: Line, rng: Random, most: int) -> None:
        await self._taken(line, most, rng)
        answer = await self._batch(line, most + 1, rng)
        while answer is None:
            answer = await self._batch(line, most + 1, rng)
        if answer.code == ResponseCode.SUCCESS:
            raise Violation(f"a batch of {most + 1} is taken where {most} may be: {answer}")

    async def _taken(self, line: Line, size: int, rng: Random) -> None:
        """Raises Violation: what may be sent is refused."""
        for _ in range(20):
            answer = await self._batch(line, size, rng)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                return
            await asyncio.sleep(0.1)
        raise Violation(f"a batch of {size} is not taken under {self._settings}: {answer}")

    async def _wrong(self, line: Line, rng: Random) -> None:
        """Raises Violation: what held before a wrong file does not hold."""
        most = rng.choice(LIMITS)
        self._write({"max_batch_messages": most})
        await self._told()
        self._write(rng.choice(WRONG))
        await self._told(is_wrong=True)
        await self._holds(line, rng, most)

    async def _full(self, line: Line, rng: Random) -> None:
        """Raises Violation: sends are taken although the disk is called full, or not after that."""
        self._write(FULL)
        await self._told()
        await asyncio.sleep(2.0)  # until everybody has looked at its disk
        answer = await self._batch(line, 1, rng)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            raise Violation(f"a broker takes messages although its disk is full: {answer}")
        self._write({})
        await self._told()
        await asyncio.sleep(2.0)
        await self._taken(line, 1, rng)

    async def _quota(self, line: Line, rng: Random) -> None:
        """Raises Violation: a tenant sends more than it may, or less where it has no quota."""
        self._write({"quotas": QUOTAS})
        await self._told()
        taken, began_us = 0, self._cluster.world.now_us
        until_us = began_us + int(COUNTED_S * SECOND)
        while self._cluster.world.now_us < until_us:
            answer = await self._batch(line, 4, rng)
            taken += 4 * (answer is not None and answer.code == ResponseCode.SUCCESS)
            if answer is not None and answer.code == ResponseCode.FLOW_CONTROL:
                await asyncio.sleep(0.1)
        seconds = (self._cluster.world.now_us - began_us) / SECOND
        most = PER_SECOND * (seconds * 1.1 + BURST_S + SEND_PATIENCE_S) + 4
        if taken > most:
            raise Violation(f"a tenant may send {PER_SECOND}/s, and sent {taken} in {seconds} s")
        self._write({})
        await self._told()
        for _ in range(PER_SECOND):
            answer = await self._batch(line, ALWAYS, rng)
            if answer is not None and answer.code == ResponseCode.FLOW_CONTROL:
                raise Violation(f"a tenant without a quota is told to wait: {answer}")

    async def _transact(self, line: Line, rng: Random) -> None:
        """Raises Violation: a producer is asked too early, or never."""
        early = await self._half(line, rng)
        await asyncio.sleep(2.0)
        if early in self._checks:
            raise Violation(f"{early} is asked for although there is a day's time")
        self._write({"transaction_timeout_s": 0.5, "transaction_check_interval_s": 0.2})
        await self._told()
        late = await self._half(line, rng)
        for _ in range(100):
            if late in self._checks:
                return
            await asyncio.sleep(0.1)
        raise Violation(f"nobody asks for {late}, but for {self._checks}")

    async def _half(self, line: Line, rng: Random) -> str:
        """A half message that was taken; its key."""
        while True:
            key = f"{rng.getrandbits(128):032X}"
            half = f"TRAN_MSG\x01true\x02PGROUP\x01{PRODUCERS}\x02"
            ext = {**send_ext(TOPIC, key, 0, half), "a": PRODUCERS, "f": 4}
            answer = await line.ask(RequestCode.SEND_MESSAGE_V2, ext, b"half")
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                return key
            await asyncio.sleep(0.1)

    def _checked(self, line: RemotingClient, check: RemotingCommand) -> None:
        """39: how did this transaction end? Nobody says."""
        if check.code == RequestCode.CHECK_TRANSACTION_STATE:
            self._checks.append((check.ext or {})["transactionId"])

    async def _anew(self, line: Line, rng: Random) -> None:
        """All brokers begin anew with what the file says. Raises Violation: it does not hold."""
        most = rng.choice(LIMITS[1:])
        self._write({"max_batch_messages": most})
        await self._told()
        for node in self._cluster.brokers:
            node.kill()
            self._cluster.world.after(rng.randrange(SECOND), node.boot)
        line.hang_up()
        while not self._cluster.is_whole:
            await asyncio.sleep(0.1)
        await self._told()
        await self._holds(line, rng, most)
