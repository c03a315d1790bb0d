"""Clients who sign as users with rules, and others who only say so, where access is on.

Access is turned on before the first broker starts (``GuardedCluster``), so nobody is ever served
who may not be: not unsigned, not with a wrong secret, not as a user that is disabled, nor one
without the rule that the request needs, nor from an address that the rule does not name, nor on
behalf of somebody without the quorum's key. Who may do something is never denied, whoever is
master. The rules of one user change: on one connection to a broker it is served as of one change
after the other, never as of an older one again; once the run is at peace it is served as of the
last.

What a user may do to a message is judged by the message, too: a transaction is ended by who may
send to its topic, whatever topic the request names; a message that a user may not consume is not
sent back for it; and a producer is asked about no message of a topic that it may not send to. No
answer holds a secret.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from gantry_cli.client.session import session
from gantry_protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
    TopicConfigTable,
    decode_body,
    encode_body,
)
from gantry_protocol.bodies.access import AclInfo, PolicyInfo, RuleInfo, UserInfo
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from gantry_protocol.records import decode_offset_msg_id
from gantry_protocol.remoting.admission import BEHALF_FIELD
from gantry_protocol.remoting.signatures import ACCESS_KEY
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, TOKEN, Cluster, ask_leader
from sim.product.line import TOPIC, Line, send_ext
from sim.product.parked import COMMIT
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.remoting.client import RemotingClient
    from sim.product.cluster import Node

HIDDEN = "hidden"  # a topic that few may use
READERS = "readers"
TRANSACTIONS = "permits-transactions"
SETTINGS = {"transaction_timeout_s": 0.5, "transaction_check_interval_s": 0.4}
CLIENT_NETWORK = "10.0.9.0/24"
WITHIN_S = 4.0
PATIENCE_S = 12.0  # with a member that does not answer what is passed on to it
DENIED_AS = "User:"  # in the sentences of denials
NOT_SERVED = (
    ResponseCode.NO_PERMISSION,
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY,
)

Rule = tuple[str, list[str], list[str], str]  # resource, actions, sources, decision


class _User(NamedTuple):
    """A user, and what it may do by its rules.

    Attributes:
        rules: of it.
        may: the needs that are met, as far as they never change.
        kind: as controllers name it.
        status: likewise.
    """

    rules: list[Rule]
    may: frozenset[str]
    kind: str = "normal"
    status: str = "enable"


SEND, READ, PEEK, HIDE, TOPICS, BOSS = "send", "read", "peek", "hide", "topics", "boss"
ALL = frozenset({SEND, READ, PEEK, HIDE, TOPICS, BOSS})
EVERYTHING = ["Pub", "Sub", "Create", "Get", "List"]
USERS = {
    "clients": _User(
        [("Topic:*", EVERYTHING, [], "Allow"), ("Group:*", ["Sub", "Get"], [], "Allow")],
        ALL - {BOSS},
    ),
    "boss": _User([], ALL, kind="super"),
    "sends": _User(
        [(f"Topic:{TOPIC}", ["Pub"], [], "Allow"), ("Topic:own", ["Pub"], [], "Allow")],
        frozenset({SEND}),
    ),
    "reads": _User(
        [
            (f"Topic:{TOPIC[:3]}*", ["Sub"], [], "Allow"),
            (f"Group:{READERS}", ["Sub"], [], "Allow"),
        ],
        frozenset({READ, PEEK}),
    ),
    "near": _User([(f"Topic:{TOPIC}", ["Pub"], [CLIENT_NETWORK], "Allow")], frozenset({SEND})),
    "afar": _User([(f"Topic:{TOPIC}", ["Pub"], ["192.0.2.0/24"], "Allow")], frozenset()),
    "all-but": _User(
        [("Topic:*", EVERYTHING, [], "Allow"), (f"Topic:{TOPIC}", ["Pub"], [], "Deny")],
        frozenset({PEEK, HIDE, TOPICS}),
    ),
    "guest": _User([], frozenset()),
    "disabled": _User([("Topic:*", EVERYTHING, [], "Allow")], frozenset(), status="disable"),
    "turning": _User([], frozenset()),
}


def secret_of(name: str) -> bytes:
    """The secret of a user."""
    return TOKEN.encode() if name == ACCESS_KEY else f"secret-of-{name}".encode()


class GuardedCluster(Cluster):
    """A cluster whose users are there, and asked for, before its brokers."""

    async def declare(self, name: str) -> None:
        """Turn access on first."""
        for user, about in USERS.items():
            path = f"/v1/clusters/{CLUSTER}/users/{user}"
            wish = {"secret": secret_of(user).decode(), "type": about.kind, "status": about.status}
            await self._have("PUT", path, wish, (200, 409))
            names = ("resource", "actions", "sources", "decision")
            rules = [dict(zip(names, rule, strict=True)) for rule in about.rules]
            if rules:
                await self._have("POST", f"{path}/rules", {"rules": rules}, (200,))
        await self._have("PUT", f"/v1/clusters/{CLUSTER}/access", {"enabled": True}, (200,))
        await super().declare(name)

    async def _have(self, method: str, path: str, body: object, wanted: tuple[int, ...]) -> None:
        status, turn = 0, 0
        while status not in wanted:
            address = self.controllers[turn % len(self.controllers)].machine.address
            turn += 1
            try:
                async with asyncio.timeout(1.0):
                    status, _ = await ask_leader(address, method, path, body)
            except (OSError, EOFError):  # TimeoutError is one
                status = 0
            if status not in wanted:
                await asyncio.sleep(0.1)


class _Ask(NamedTuple):
    """A request, and what a user must be allowed to make it."""

    needs: str
    code: RequestCode
    ext: dict[str, object]
    body: bytes = b""


def _asks(rng: Random) -> list[_Ask]:
    code, key = RequestCode, f"{rng.getrandbits(128):032X}"
    queue = {"topic": TOPIC, "queueId": 0}
    of_group = {"consumerGroup": READERS, **queue}
    pull = to_ext(PullMessageRequestHeader(READERS, TOPIC, 0, 0, 8, 4, 0, 0, 0, "*", "TAG"))
    member = ConsumerData(READERS, subscription_data_set=[SubscriptionData(TOPIC)])
    pop = {
        "maxMsgNums": 1, "invisibleTime": 500, "pollTime": 0, "bornTime": 0, "initMode": 0,
        "order": False,
    }  # fmt: skip
    locks = {
        "consumerGroup": READERS,
        "clientId": "permits",
        "mqSet": [{"topic": TOPIC, "brokerName": "g", "queueId": 0}],
    }
    return [
        _Ask(SEND, code.SEND_MESSAGE_V2, send_ext(TOPIC, key), b"x"),
        _Ask(HIDE, code.SEND_MESSAGE_V2, send_ext(HIDDEN, key), b"x"),
        _Ask(READ, code.PULL_MESSAGE, dict(pull)),
        _Ask(READ, code.POP_MESSAGE, {**of_group, **pop}),
        _Ask(READ, code.HEART_BEAT, {}, encode_body(HeartbeatData("permits", [], [member]))),
        _Ask(READ, code.QUERY_CONSUMER_OFFSET, of_group),
        _Ask(READ, code.UPDATE_CONSUMER_OFFSET, {**of_group, "commitOffset": 0}),
        _Ask(READ, code.LOCK_BATCH_MQ, {}, encode_body(locks)),
        _Ask(PEEK, code.GET_MAX_OFFSET, queue),
        _Ask(TOPICS, code.GET_ALL_TOPIC_CONFIG, {}),
        _Ask(BOSS, code.GET_BROKER_RUNTIME_INFO, {}),
        _Ask(BOSS, code.AUTH_LIST_USER, {"filter": ""}),
        _Ask(BOSS, code.AUTH_GET_ACL, {"subject": "User:sends"}),
    ]


def _is_served(answer: RemotingCommand) -> bool:
    return answer.code not in NOT_SERVED


def _is_denied(answer: RemotingCommand) -> bool:
    return answer.code == ResponseCode.NO_PERMISSION and DENIED_AS in (answer.remark or "")


class Permits(Clients):
    """See the module.

    Attributes:
        found: what must not have been; of what brokers have asked clients.
    """

    unsettled = "users are not served as their rules say"

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.found: list[str] = []
        self._turns: list[bool | None] = [False]  # what "turning" might do; None: perhaps
        self._last: bool | None = None  # its last change, which no other follows
        cluster.topics += [HIDDEN, "own"]

    def start(self) -> None:
        """Begin."""
        for name, run in {
            "permits-0": self._everybody,
            "permits-1": self._everybody,
            "permits-transactions": self._transact,
            "permits-guest": self._overhear,
            "permits-turning": self._turning,
            "permits-boss": self._turn,
        }.items():
            self._cluster.client(name, run).boot()

    def judge(self) -> None:
        """Raises Violation: somebody was asked what it may not know."""
        super().judge()
        if self.found:
            raise Violation(self.found[0])

    # ---- users whose rules stay

    async def _everybody(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            kinds = {"unsigned": Line(client), "wrong": Line(client, user=("boss", b"another"))}
            lines = {name: Line(client, user=(name, secret_of(name))) for name in USERS}
            lines |= kinds | {"ours": Line(client, user=(ACCESS_KEY, secret_of(ACCESS_KEY)))}
            names = [name for name in lines if name != "turning"]
            while not self._stops:
                await asyncio.sleep(rng.random() * 0.1)
                name, asked = rng.choice(names), rng.choice(_asks(rng))
                ext, may = asked.ext, self._may(name)
                if name in ("unsigned", "ours") and rng.random() < 0.5:
                    behalf = rng.choice(["boss", "guest", "sends", "nobody"])
                    ext = {**ext, BEHALF_FIELD: behalf}
                    may = self._may(behalf) if name == "ours" else may
                answer = await lines[name].ask(asked.code, ext, asked.body, PATIENCE_S)
                if answer is not None:
                    self._judge(name, asked, answer, asked.needs in may)
        self._busy -= 1

    def _may(self, name: str) -> frozenset[str]:
        if name == "ours":
            return ALL
        return USERS[name].may if name in USERS else frozenset()

    def _judge(self, name: str, asked: _Ask, answer: RemotingCommand, may: bool) -> None:
        """Raises Violation: somebody is served who may not be, or denied who may, or told more."""
        if not may and _is_served(answer):
            raise Violation(f"{name} may not, and {asked.code.name} is answered {answer}")
        if may and _is_denied(answer):
            raise Violation(f"{name} may, and {asked.code.name} is denied: {answer.remark}")
        if b"secret-of" in answer.body:
            raise Violation(f"{asked.code.name} shows a secret")
        if asked.code == RequestCode.GET_ALL_TOPIC_CONFIG and answer.code == ResponseCode.SUCCESS:
            decode_body(TopicConfigTable, answer.body)
        if asked.code == RequestCode.AUTH_LIST_USER and answer.code == ResponseCode.SUCCESS:
            listed = {one.username for one in decode_body(list[UserInfo], answer.body)}
            if listed != USERS.keys():
                raise Violation(f"users are {sorted(USERS)}, and listed are {listed}")
        self._cluster.world.count("permitted" if may else "denied")

    # ---- messages that a request names

    async def _transact(self, node: Node) -> None:
        """Begin transactions, which others try to end, and end them; have messages sent back."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        greeting = (
            RequestCode.HEART_BEAT,
            encode_body(HeartbeatData(node.name, [ProducerData(TRANSACTIONS)], [])),
        )
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            other = Line(client, user=("all-but", secret_of("all-but")))
            reader = Line(client, user=("reads", secret_of("reads")))
            hides = Line(client, user=("boss", secret_of("boss")))
            while not self._stops:
                await asyncio.sleep(rng.random() * 0.6)
                line = Line(client, user=("sends", secret_of("sends")), greeting=greeting)
                half = f"TRAN_MSG\x01true\x02PGROUP\x01{TRANSACTIONS}\x02"
                key = f"{rng.getrandbits(128):032X}"
                ext = {**send_ext(TOPIC, key, 0, half), "a": TRANSACTIONS, "f": 4}
                answer = await line.ask(RequestCode.SEND_MESSAGE_V2, ext, b"x", WITHIN_S)
                if answer is not None and answer.code == ResponseCode.SUCCESS:
                    await self._end(line, other, answer, leaves=rng.random() < 0.3)
                line.hang_up()
                await self._send_back(hides, reader, HIDDEN if rng.random() < 0.5 else TOPIC, rng)
        self._busy -= 1

    async def _end(self, own: Line, other: Line, sent: RemotingCommand, *, leaves: bool) -> None:
        """Raises Violation: somebody ends a transaction who may not send to its topic."""
        ext = sent.ext or {}
        end: dict[str, object] = {
            "commitLogOffset": decode_offset_msg_id(ext["msgId"])[1],
            "commitOrRollback": COMMIT, "fromTransactionCheck": False,
            "msgId": ext["transactionId"], "producerGroup": TRANSACTIONS, "topic": HIDDEN,
            "transactionId": ext["transactionId"], "tranStateTableOffset": ext["queueOffset"],
        }  # fmt: skip
        answer = await other.ask(RequestCode.END_TRANSACTION, end, b"", WITHIN_S)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            raise Violation(f"a transaction is ended by who may not send to its topic: {answer}")
        self._cluster.world.count("not-ended")
        if leaves:
            return
        answer = await own.ask(RequestCode.END_TRANSACTION, {**end, "topic": TOPIC}, b"", WITHIN_S)
        if answer is not None and _is_denied(answer):
            raise Violation(f"a transaction cannot be ended: {answer.remark}")

    async def _send_back(self, owner: Line, reader: Line, topic: str, rng: Random) -> None:
        """Raises Violation: a message is sent back for who may not consume its topic."""
        key = f"{rng.getrandbits(128):032X}"
        sent = await owner.ask(RequestCode.SEND_MESSAGE_V2, send_ext(topic, key), b"x", WITHIN_S)
        if sent is None or sent.code != ResponseCode.SUCCESS:
            return
        back = {
            "offset": decode_offset_msg_id((sent.ext or {})["msgId"])[1],
            "group": READERS,
            "delayLevel": 1,
            "originTopic": TOPIC,
        }
        answer = await reader.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back, b"", WITHIN_S)
        if answer is None:
            return
        if topic == HIDDEN and answer.code == ResponseCode.SUCCESS:
            raise Violation(f"a message of {topic} is sent back for who may not consume it")
        if topic == TOPIC and _is_denied(answer):
            raise Violation(f"a message cannot be sent back: {answer.remark}")
        self._cluster.world.count(f"sent back: {topic == TOPIC}")

    async def _overhear(self, node: Node) -> None:
        """Say to be a producer of the group of these transactions, whose topic it may not use."""
        data = encode_body(HeartbeatData(node.name, [ProducerData(TRANSACTIONS)], []))

        def asked(line: RemotingClient, check: RemotingCommand) -> None:
            if check.code == RequestCode.CHECK_TRANSACTION_STATE:
                self.found.append(f"guest is asked about a message of {TOPIC}: {check.ext}")

        async with session(self._cluster.name_servers) as client:
            line = Line(client, user=("guest", secret_of("guest")), on_request=asked)
            while True:
                answer = await line.ask(RequestCode.HEART_BEAT, {}, data)
                if answer is not None and _is_denied(answer):
                    raise Violation(f"any user may register as a producer: {answer.remark}")
                await asyncio.sleep(0.5)

    # ---- a user whose rules change

    async def _turn(self, node: Node) -> None:
        """Allow and forbid a user to send, by a broker, as RocketMQ's tools do."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client, user=("boss", secret_of("boss")))
            while not self._stops:
                await self._change(line, not self._turns[-1])
                await asyncio.sleep(rng.random() * 1.5)
            may = rng.random() < 0.5
            await self._change(line, may)
            self._last = may
        self._busy -= 1

    async def _change(self, line: Line, may: bool) -> None:
        rule = RuleInfo(f"Topic:{TOPIC}", ["Pub"], decision="Allow" if may else "Deny")
        acl = encode_body(AclInfo(policies=[PolicyInfo("Custom", [rule])]))
        self._turns.append(None)  # from now on, and of an older try that comes late
        while True:
            answer = await line.ask(
                RequestCode.AUTH_UPDATE_ACL, {"subject": "User:turning"}, acl, WITHIN_S
            )
            if answer is not None and _is_denied(answer):
                raise Violation(f"a super user may not change rules: {answer.remark}")
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                break
            await asyncio.sleep(0.1)
        self._turns.append(may)
        self._cluster.world.count("rule-changed")

    async def _turning(self, node: Node) -> None:
        """Send all the time, as of one rule after the other, and of the last one in the end."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line, at, known = Line(client, user=("turning", secret_of("turning"))), 0, None
            while True:
                await asyncio.sleep(rng.random() * 0.1)
                key = f"{rng.getrandbits(128):032X}"
                serving = self._serving()
                answer = await line.ask(
                    RequestCode.SEND_MESSAGE_V2, send_ext(TOPIC, key), b"x", WITHIN_S
                )
                if answer is None or not (_is_served(answer) or _is_denied(answer)):
                    continue
                may = _is_served(answer)
                if self._last == may:
                    break
                if serving is None or serving is not known or serving is not self._serving():
                    at, known = 0, serving
                at = self._known_at(may, at)
        self._busy -= 1

    def _serving(self) -> object:
        """The process that serves clients, if that can only be one."""
        cluster = self._cluster
        groups = [(node, cluster.group_of(node)) for node in cluster.brokers]
        found = [
            node.process for node, group in groups if group and group.core and group.core.serving
        ]
        return found[0] if len(found) == 1 and not (cluster.doors or cluster.fronts) else None

    def _known_at(self, may: bool, at: int) -> int:
        """The earliest change from ``at`` on that explains an answer. Raises Violation: none."""
        for place in range(at, len(self._turns)):
            if self._turns[place] in (may, None):
                return place
        raise Violation(f"served: {may}, with change {at} known, of {self._turns}")
