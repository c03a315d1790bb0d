"""An administrator of consumer groups who asks brokers: settings, lists of them, deletions.

What was answered 0 is what brokers say from some moment on, whoever is master by then, and a group
that may not consume is given nothing while they say so. No broker says what nobody has written. A
group that is deleted with its offsets has none afterwards; one that is deleted without keeps them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_cli.client.session import session
from gantry_protocol.bodies import (
    SubscriptionGroupConfig,
    SubscriptionGroupTable,
    decode_body,
    encode_body,
)
from gantry_protocol.bodies.inspection import SubscriptionGroupList
from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.headers.client import PullMessageRequestHeader
from gantry_protocol.headers.codec import to_ext
from sim.kernel.world import Violation
from sim.product.line import TOPIC, Line
from sim.product.workload import Clients

if TYPE_CHECKING:
    from random import Random

    from sim.product.cluster import Cluster, Node

GROUPS = 3
OFFSET = 3  # that is committed before a group is deleted
BROKERS_OWN = "GANTRY_SYS_DELAY"
MISSING = (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,)

_Value = tuple[int, bool] | None
"""How often messages are tried again, and whether the group may consume; None: no setting."""


class Consents(Clients):
    """See the module.

    Attributes:
        written: every value that a group may ever have had.
    """

    unsettled = "settings of consumer groups do not come to be known"

    def __init__(self, cluster: Cluster) -> None:
        self.written: dict[str, set[_Value]] = {}
        super().__init__(cluster)
        self._names = [self._new_name() for _ in range(GROUPS)]

    def start(self) -> None:
        """Begin."""
        self._cluster.client("consents", self._administer).boot()

    def _new_name(self) -> str:
        name = f"consent-{len(self.written)}"
        self.written[name] = {None}
        return name

    async def _administer(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            own = {"groupName": BROKERS_OWN}
            refused = (ResponseCode.NO_PERMISSION,)
            answer = await line.insist(RequestCode.DELETE_SUBSCRIPTIONGROUP, own, but=refused)
            if answer.code not in refused:
                raise Violation(f"a group of the broker's own is deleted: {answer}")
            while not self._stops:
                await asyncio.sleep(rng.random() * 0.3)
                chosen = rng.sample(self._names, rng.choice([1, 1, GROUPS]))
                is_known = await (self._delete if rng.random() < 0.4 else self._set)(
                    line, rng, chosen
                )
                if not is_known:  # it may be carried out later
                    for name in chosen:
                        self._names[self._names.index(name)] = self._new_name()
        self._busy -= 1

    async def _tell(self, line: Line, code: int, ext: dict[str, object], body: bytes = b"") -> bool:
        """Whether something was done for certain."""
        answer = await line.ask(code, ext, body)
        return answer is not None and answer.code == ResponseCode.SUCCESS

    async def _set(self, line: Line, rng: Random, names: list[str]) -> bool:
        """Groups get a value; who may not consume is given nothing."""
        wish = {name: (rng.randint(1, 30), rng.random() < 0.6) for name in names}
        configs = [_config(name, value) for name, value in wish.items()]
        for name, value in wish.items():
            self.written[name].add(value)
        code, body = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, encode_body(configs[0])
        if len(configs) > 1:
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            body = encode_body(SubscriptionGroupList(configs))
        if not await self._tell(line, code, {}, body):
            return False
        self._cluster.world.count("consent")
        for name, value in wish.items():
            await self._until_said(line, name, value)
            if not value[1] and not self._cluster.doors:
                await self._must_be_refused(line, name, value)
        return True

    async def _until_said(self, line: Line, name: str, value: _Value) -> None:
        """Raises Violation: a broker says what nobody has written."""
        while await self._said(line, name) != value:
            await asyncio.sleep(0.1)
        answer = await line.insist(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
        table = decode_body(SubscriptionGroupTable, answer.body).subscription_group_table
        self._judge(name, _value(table.get(name)))

    async def _said(self, line: Line, name: str) -> _Value:
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        answer = await line.insist(code, {"group": name}, but=MISSING)
        if answer.code in MISSING:
            return None
        found = _value(decode_body(SubscriptionGroupConfig, answer.body))
        self._judge(name, found)
        return found

    def _judge(self, name: str, found: _Value) -> None:
        if found not in self.written[name]:
            raise Violation(f"{name} is said to be {found}, of {self.written[name]}")

    async def _must_be_refused(self, line: Line, name: str, value: _Value) -> None:
        """Raises Violation: a group that may not consume is given messages."""
        header = PullMessageRequestHeader(name, TOPIC, 0, 0, 8, 4, 0, 0, 0, "*", "TAG")
        connection = line.connection
        answer = await line.ask(RequestCode.PULL_MESSAGE, to_ext(header))
        if answer is None or answer.code != ResponseCode.SUCCESS:
            self._cluster.world.count("consent-refused")
            return
        said = await self._said(line, name)
        if said == value and line.connection is connection:
            raise Violation(f"{name} may not consume, and is given {len(answer.body)} bytes")

    async def _delete(self, line: Line, rng: Random, names: list[str]) -> bool:
        """Delete a group, with its offset or without."""
        name, cleans = names[0], rng.random() < 0.5
        where: dict[str, object] = {"consumerGroup": name, "topic": TOPIC, "queueId": 0}
        commit = {**where, "commitOffset": OFFSET}
        if not await self._tell(line, RequestCode.UPDATE_CONSUMER_OFFSET, commit):
            return False
        wish: dict[str, object] = {"groupName": name, "cleanOffset": cleans}
        if not await self._tell(line, RequestCode.DELETE_SUBSCRIPTIONGROUP, wish):
            return False
        self._cluster.world.count("consent-deleted")
        question = {**where, "setZeroIfNotFound": False}
        gone = (ResponseCode.QUERY_NOT_FOUND,)
        found = await line.insist(RequestCode.QUERY_CONSUMER_OFFSET, question, but=gone)
        if (found.code in gone) != cleans:
            raise Violation(f"{name} was deleted, with its offset {cleans}: {found}")
        await self._until_said(line, name, None)
        return True


def _config(name: str, value: tuple[int, bool]) -> SubscriptionGroupConfig:
    tries, may = value
    return SubscriptionGroupConfig(name, retry_max_times=tries, consume_enable=may)


def _value(config: SubscriptionGroupConfig | None) -> _Value:
    return None if config is None else (config.retry_max_times, config.consume_enable)
