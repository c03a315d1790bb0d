"""What administrators write at controllers, each place by one of them: key-values, topics, settings
of consumer groups, write permissions, users and their rules, brokers of the old kind, the ends of
groups.

A place holds what was written last once that is answered. What was not answered may be carried out
at any later time. Reads are linearizable: any controller shows one of the values that the place can
have, whichever it is asked. Without the quorum's key nothing is written where it is asked for.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from gantry_cli.client.session import session
from gantry_controller.metadata.names import ORDER_IN_ROUTES
from gantry_protocol.bodies import (
    BrokerMemberGroupBody,
    KVTable,
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    TopicConfigTable,
    decode_body,
    encode_body,
    encode_registration,
)
from gantry_protocol.bodies.access import AclInfo, PolicyInfo, RuleInfo, UserInfo
from gantry_protocol.bodies.route import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import RemotingError, ResolveError
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, http
from sim.product.line import topic_ext
from sim.product.workload import Clients, Rests

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from gantry_cli.client.session import Session
    from sim.product.cluster import Cluster, Node

CLIENTS = 3
BURST = 10
WITHIN_S = 4.0
NAMES, CONTROLLERS = 9876, 9878
NOTHING, WIPED = "", "wiped"


class _Place(NamedTuple):
    """Something that holds a value.

    Attributes:
        name: of it.
        port: of the controllers, where it is written and read.
        write: the request that gives it a value; ``NOTHING`` strikes it.
        read: the request that shows it.
        found: the value in its answer.
        values: what may be written.
        fades: whether a value may be gone at any time.
    """

    name: str
    port: int
    write: Callable[[str], RemotingCommand]
    read: Callable[[], RemotingCommand | None]
    found: Callable[[RemotingCommand], str]
    values: tuple[str, ...]
    fades: bool = False


class Registers(Clients):
    """See the module.

    Args:
        cluster: where.
        keyed: whether controllers ask for the quorum's key, which nobody here has.

    Attributes:
        possible: what each place may hold.
    """

    unsettled = "what was written cannot be read"

    def __init__(self, cluster: Cluster, *, keyed: bool = False) -> None:
        self.possible: dict[str, set[str]] = {}
        super().__init__(cluster)
        self._keyed = keyed

    def start(self) -> None:
        """Begin."""
        for number in range(CLIENTS):
            self._cluster.client(f"registers-{number}", self._change).boot()

    def judge(self) -> None:
        """Raises Violation."""
        super().judge()
        for node in self._cluster.controllers:
            controller = self._cluster.controller_of(node)
            wiped = (
                set() if controller is None else {key[1] for key in controller.machine.state.wiped}
            )
            for place, held in self.possible.items():
                group, _, name = place.partition("/")
                if name == WIPED and (WIPED if group in wiped else NOTHING) not in held:
                    raise Violation(f"{node.name} has {sorted(wiped)}, {place} is {held}")

    async def _change(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        rests = Rests(self._cluster, node.name, BURST)
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            group = node.name
            await self._declare(rng, group, "u1")
            while not self._keyed and not await self._is_made(client, rng, _ruled(group)):
                await asyncio.sleep(0.1)
            places = [*_places(group), _wiped(group)]
            if node.name.endswith("-0"):
                places.append(_setting())
            for place in places:
                self.possible[f"{group}/{place.name}"] = {NOTHING}
            while not self._stops:
                await rests.after_turn()
                await asyncio.sleep(rng.random() * 0.05)
                place = rng.choice(places)
                held = self.possible[f"{group}/{place.name}"]
                if rng.random() < 0.5:
                    await self._write(client, rng, place, held)
                await self._look(client, rng, place, held)
                if rng.random() < 0.05:
                    await self._end(rng, f"{group}-{rng.randrange(1_000_000)}")
            for place in places:
                await self._look(client, rng, place, self.possible[f"{group}/{place.name}"])
        self._busy -= 1

    async def _is_made(self, client: Session, rng: Random, user: str) -> bool:
        answer = await self._ask(client, rng, CONTROLLERS, _new_user(user))
        return answer is not None and answer.code == ResponseCode.SUCCESS

    async def _write(self, client: Session, rng: Random, place: _Place, held: set[str]) -> None:
        value = rng.choice([*place.values, NOTHING])
        held.add(value)
        answer = await self._ask(client, rng, place.port, place.write(value))
        if answer is None or answer.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR):
            return  # nobody knows
        if answer.code == ResponseCode.NO_PERMISSION and self._keyed:
            held.discard(value)
            held.add(NOTHING)
            return
        if self._keyed:
            raise Violation(f"{place.name} is written without a key: {answer}")
        if answer.code == ResponseCode.SUCCESS:
            self._cluster.world.count("written")
            held.clear()
            held.update({value, NOTHING} if place.fades else {value})

    async def _look(self, client: Session, rng: Random, place: _Place, held: set[str]) -> None:
        """Read until somebody answers. Raises Violation: it is what it cannot be."""
        while True:
            before, question = set(held), place.read()
            if question is None:
                return
            answer = await self._ask(client, rng, place.port, question)
            if answer is not None and answer.code not in (
                ResponseCode.SYSTEM_ERROR,
                ResponseCode.SYSTEM_BUSY,
                ResponseCode.CONTROLLER_NOT_LEADER,
            ):
                break
            await asyncio.sleep(0.1)
        found = place.found(answer) if answer.code == ResponseCode.SUCCESS else NOTHING
        self._cluster.world.count("read")
        if found not in before:
            raise Violation(f"{place.name} is {found!r}, and can be {sorted(before)} only")

    async def _ask(
        self, client: Session, rng: Random, port: int, command: RemotingCommand
    ) -> RemotingCommand | None:
        node = rng.choice(self._cluster.controllers)
        try:
            return await client.calls.call(f"{node.machine.address}:{port}", command, WITHIN_S)
        except (RemotingError, ResolveError):
            return None

    # ---- groups, by the admin API

    async def _end(self, rng: Random, name: str) -> None:
        """Declare a group, retire it, remove it, and declare it anew: each is so at once."""
        await self._declare(rng, name, "first")
        path = f"/v1/groups/{CLUSTER}/{name}"
        await self._insist(rng, "POST", f"{path}/retire", {"uid": "first"}, (200,))
        await self._insist(rng, "DELETE", f"{path}?uid=another", None, (409,))
        await self._insist(rng, "DELETE", f"{path}?uid=first", None, (204,))
        await self._insist(rng, "GET", path, None, (404,))
        await self._insist(rng, "PUT", path, _wish("first"), (409,))
        await self._declare(rng, name, "second")
        await self._insist(rng, "GET", f"{path}?anywhere", None, (200,))
        for verb, body in NONSENSE.items():
            await self._insist(rng, "POST", f"{path}/{verb}", body, (200, 400, 404, 409))
        await self._insist(rng, "GET", "/v1/groups?limit=2", None, (200,))
        self._cluster.world.count("ended")

    async def _declare(self, rng: Random, name: str, uid: str) -> None:
        await self._insist(rng, "PUT", f"/v1/groups/{CLUSTER}/{name}", _wish(uid), (200,))

    async def _insist(
        self, rng: Random, method: str, path: str, body: object, expected: tuple[int, ...]
    ) -> None:
        """Ask until it is answered as expected. Raises Violation: it is answered otherwise."""
        while True:
            address = rng.choice(self._cluster.controllers).machine.address
            try:
                async with asyncio.timeout(WITHIN_S):
                    status, text = await http(address, method, path, body)
            except (OSError, EOFError):  # TimeoutError is one
                status, text = 0, b""
            if status in expected:
                return
            if status not in (0, 421, 429, 503):
                raise Violation(f"{method} {path} is answered {status}: {text[:300]!r}")
            await asyncio.sleep(0.05)


NONSENSE: dict[str, object] = {  # of a group without a member
    "elect": {"brokerId": 1, "masterEpoch": 0},
    "forget": {"brokerId": 1},
    "accept-loss": {"brokerId": 1, "masterEpoch": 0, "confirmedOffset": -1},
    "adopt": {"brokerIds": [1], "masterEpoch": 0},
    "evidence": {"podUid": "p"},
    "nothing": {},
}


def _wish(uid: str) -> dict[str, object]:
    return {"uid": uid, "replicas": 1, "minInSyncReplicas": 1}


def _places(group: str) -> list[_Place]:
    """The places of one administrator, whose broker group is ``group``."""
    code = RequestCode
    here = {"clusterName": CLUSTER, "brokerName": group}
    topic, consumers, space = f"topic-{group}", f"consumers-{group}", f"space-{group}"

    def key_value(key: str) -> _Place:
        where = {"namespace": space, "key": key}

        def write(value: str) -> RemotingCommand:
            if value == NOTHING:
                return request(code.DELETE_KV_CONFIG, where)
            return request(code.PUT_KV_CONFIG, {**where, "value": value})

        def listed(answer: RemotingCommand) -> str:
            return decode_body(KVTable, answer.body).table.get(key, NOTHING)

        by_name = key == "b"  # this one is looked up in the listing
        return _Place(
            f"value {key}",
            NAMES,
            write,
            lambda: (
                request(code.GET_KVLIST_BY_NAMESPACE, {"namespace": space})
                if by_name
                else request(code.GET_KV_CONFIG, where)
            ),
            listed if by_name else lambda answer: (answer.ext or {})["value"],
            ("1", "2", "3"),
        )

    def write_topic(value: str) -> RemotingCommand:
        if value == NOTHING:
            return request(code.DELETE_TOPIC_IN_BROKER, {**here, "topic": topic})
        ext = {key: str(one) for key, one in topic_ext(topic, int(value)).items()}
        ext["order"] = "false"
        return request(code.UPDATE_AND_CREATE_TOPIC, {**ext, **here})

    def found_topic(answer: RemotingCommand) -> str:
        table = decode_body(TopicConfigTable, answer.body).topic_config_table
        return str(table[topic].read_queue_nums) if topic in table else NOTHING

    def write_consumers(value: str) -> RemotingCommand:
        if value == NOTHING:
            return request(code.DELETE_SUBSCRIPTIONGROUP, {**here, "groupName": consumers})
        config = SubscriptionGroupConfig(consumers, retry_max_times=int(value))
        return request(code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, here, encode_body(config))

    def found_consumers(answer: RemotingCommand) -> str:
        table = decode_body(SubscriptionGroupTable, answer.body).subscription_group_table
        return str(table[consumers].retry_max_times) if consumers in table else NOTHING

    return [
        key_value("a"),
        key_value("b"),
        _Place(
            "topic",
            CONTROLLERS,
            write_topic,
            lambda: request(code.GET_ALL_TOPIC_CONFIG, here),
            found_topic,
            ("1", "4", "8"),
        ),
        _Place(
            "consumers",
            CONTROLLERS,
            write_consumers,
            lambda: request(code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, here),
            found_consumers,
            ("3", "5"),
        ),
        _old_broker(f"old-{group}"),
        _user(f"user-{group}"),
        _rules(_ruled(group)),
    ]


def _user(name: str) -> _Place:
    """A user that comes and goes."""
    code, where = RequestCode, {"clusterName": CLUSTER, "username": name}

    def write(value: str) -> RemotingCommand:
        return request(code.AUTH_DELETE_USER, where) if value == NOTHING else _new_user(name)

    def found(answer: RemotingCommand) -> str:
        listed = decode_body(list[UserInfo], answer.body)
        return next((one.user_type or "?" for one in listed if one.username == name), NOTHING)

    def read() -> RemotingCommand:
        return request(code.AUTH_LIST_USER, {"clusterName": CLUSTER, "filter": name[:-1]})

    return _Place("user", CONTROLLERS, write, read, found, ("Normal",))


def _ruled(group: str) -> str:
    """The user of an administrator who stays, and whose rules change."""
    return f"ruled-{group}"


def _new_user(name: str) -> RemotingCommand:
    info = UserInfo(name, f"secret-of-{name}", "Normal", "enable")
    where = {"clusterName": CLUSTER, "username": name}
    return request(RequestCode.AUTH_CREATE_USER, where, encode_body(info))


def _rules(name: str) -> _Place:
    """What a user that is there may do with a topic."""
    code, where = RequestCode, {"clusterName": CLUSTER, "subject": f"User:{name}"}

    def write(value: str) -> RemotingCommand:
        if value == NOTHING:
            gone = {**where, "policyType": "Custom", "resource": "Topic:x"}
            return request(code.AUTH_DELETE_ACL, gone)
        rule = RuleInfo("Topic:x", value.split(), decision="Allow")
        acl = AclInfo(policies=[PolicyInfo("Custom", [rule])])
        return request(code.AUTH_UPDATE_ACL, where, encode_body(acl))

    def found(answer: RemotingCommand) -> str:
        policies = decode_body(AclInfo, answer.body).policies
        (rule,) = [rule for policy in policies for rule in policy.entries]
        return " ".join(sorted(rule.actions))

    def read() -> RemotingCommand:
        return request(code.AUTH_GET_ACL, where)

    return _Place("rules", CONTROLLERS, write, read, found, ("Pub", "Pub Sub"))


def _old_broker(name: str) -> _Place:
    """A broker of the old kind, which reports itself and leaves.

    What it reports lasts for as long as its connection does, so it may be gone at any time.
    """
    code = RequestCode
    address = "10.9.9.9:10911"
    topics = {f"t-{name}": TopicConfig(f"t-{name}"), f"u-{name}": TopicConfig(f"u-{name}")}

    def write(value: str) -> RemotingCommand:
        where = {
            "brokerName": name,
            "brokerAddr": address,
            "clusterName": CLUSTER,
            "brokerId": "0",
            "compressed": "true",
        }
        if value == NOTHING:
            return request(code.UNREGISTER_BROKER, where)
        body = RegisterBrokerBody(TopicConfigSerializeWrapper(topics))
        return request(code.REGISTER_BROKER, where, encode_registration(body))

    def found(answer: RemotingCommand) -> str:
        group = decode_body(BrokerMemberGroupBody, answer.body).broker_member_group
        return address if group.broker_addrs else NOTHING

    return _Place(
        "old broker",
        NAMES,
        write,
        lambda: request(code.GET_BROKER_MEMBER_GROUP, {"clusterName": CLUSTER, "brokerName": name}),
        found,
        (address,),
        fades=True,
    )


def _wiped(group: str) -> _Place:
    """Whether producers are kept from a group; shown by the state only (``Registers.judge``)."""
    here = {"clusterName": CLUSTER, "brokerName": group}

    def write(value: str) -> RemotingCommand:
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        return request(RequestCode.WIPE_WRITE_PERM_OF_BROKER if value else code, here)

    return _Place(WIPED, NAMES, write, lambda: None, lambda _: NOTHING, ("wiped",))


def _setting() -> _Place:
    """A setting of all name servers together."""

    def write(value: str) -> RemotingCommand:
        text = f"{ORDER_IN_ROUTES}={'true' if value else 'false'}\n"
        return request(RequestCode.UPDATE_NAMESRV_CONFIG, body=text.encode())

    def found(answer: RemotingCommand) -> str:
        return "on" if f"{ORDER_IN_ROUTES}=true" in answer.body.decode() else NOTHING

    read = request(RequestCode.GET_NAMESRV_CONFIG)
    return _Place("setting", NAMES, write, lambda: read, found, ("on",))
