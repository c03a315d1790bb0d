"""People who keep topics, users and consumer groups as resources, and others who change them.

Resources are made, changed and deleted in any order, two of them for one thing now and then, while
somebody else changes the same topics by hand. In the end the metadata is what the resources that
count wish for, and what went with its resource is gone. A consumer group that is to go back has
done so in every queue, as its resource says.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gantry_cli.client.session import session
from gantry_cli.client.topics import create_topic
from gantry_local.apiserver.errors import StatusError
from gantry_operator.models.consumer_group import EARLIEST, LATEST
from gantry_protocol.bodies import SubscriptionGroupConfig, decode_body
from gantry_protocol.codes import RequestCode
from gantry_protocol.errors import GantryError
from sim.kernel.world import Violation
from sim.product.cluster import CLUSTER, GROUP
from sim.product.line import Line
from sim.product.operated import NAMESPACE
from sim.product.people import People

if TYPE_CHECKING:
    from random import Random

    from sim.product.cluster import Node
    from sim.product.operated import OperatedCluster

API = "mq.gantry.dev"
KINDS = {
    "topics": ("Topic", "topicName"),
    "messageusers": ("MessageUser", "userName"),
    "consumergroups": ("ConsumerGroup", "groupName"),
}
THINGS = ("A", "B")
NAMES = ("first", "second")
WAIT_S = 0.6
MOVES = (EARLIEST, LATEST, "2026-01-01T00:00:00Z")
READ, QUEUES = "orders", 2  # what consumer groups are moved in


class Owners(People):
    """See the module."""

    unsettled = "what resources wish for is not so"
    plural = "topics"

    def __init__(self, cluster: OperatedCluster) -> None:
        super().__init__(cluster)
        self._gone: set[tuple[str, str]] = set()  # what went with its resource, and has none
        self._requests = 0  # to move consumer groups, that were made

    def start(self) -> None:
        """Begin."""
        self._cluster.client("owners", self._live).boot()
        self._cluster.client("others", self._others).boot()

    async def _live(self, node: Node) -> None:
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        while not self._stops:
            await asyncio.sleep(rng.random() * WAIT_S)
            if self._cluster.is_set_up:
                with suppress(StatusError):
                    self._act(rng)
        await self._until("the others to end", lambda: self._busy == 1)
        await self._until("metadata as the resources wish", lambda: not self.difference())
        for thing in THINGS:
            await self._look_at_offsets(thing)
        self._busy -= 1

    async def _others(self, node: Node) -> None:
        """Somebody who changes topics by hand, and makes them before their resources do."""
        rng = self._cluster.world.stream(f"load/{node.name}")
        self._busy += 1
        async with session(self._cluster.name_servers) as client:
            while not self._stops:
                await asyncio.sleep(rng.random() * 15 * WAIT_S)
                if not self._cluster.is_set_up:
                    continue
                topic, queues = rng.choice(THINGS), rng.choice([1, 2, 5])
                if not self._claimants("topics", topic):
                    self._gone.discard(("topics", topic))
                with suppress(GantryError):
                    await create_topic(client, topic, queues=queues, cluster=CLUSTER)
                    self._cluster.world.count("topics-by-hand")
        self._busy -= 1

    # ---- what people do

    def _act(self, rng: Random) -> None:
        """One deed. Raises StatusError: the API server refuses it, as people may have hoped."""
        plural = rng.choice(list(KINDS))
        thing, name = rng.choice(THINGS), rng.choice(NAMES)
        resource = f"{thing.lower()}-{name}"
        found = self._found(plural, resource)
        if found is None:
            self._make(plural, resource, thing, rng)
        elif found["metadata"].get("deletionTimestamp") is None:
            if rng.random() < 0.4:
                self._delete(plural, thing, found)
            else:
                self._cluster.change(plural, resource, {"spec": self._wish(plural, rng)})
                self._cluster.world.count("wishes-changed")

    def _make(self, plural: str, resource: str, thing: str, rng: Random) -> None:
        kind, field = KINDS[plural]
        spec = {
            "controllerRef": {"name": CLUSTER},
            field: thing,
            "adopt": rng.random() < 0.7,
            "deletionPolicy": rng.choice(["Retain", "Delete"]),
            **self._wish(plural, rng),
        }
        meta = {"name": resource, "namespace": NAMESPACE}
        self._cluster.create(
            API,
            plural,
            {"apiVersion": f"{API}/v1alpha1", "kind": kind, "metadata": meta, "spec": spec},
        )
        self._gone.discard((plural, thing))
        self._cluster.world.count("wishes-made")

    def _wish(self, plural: str, rng: Random) -> dict[str, Any]:
        if plural == "topics":
            return {"queues": rng.choice([2, 3, 4]), "allowFewerQueues": rng.random() < 0.7}
        if plural == "consumergroups":
            self._requests += 1
            moved = {"request": self._requests, "to": rng.choice(MOVES), "topics": [READ]}
            return {"maxRetries": rng.choice([1, 2, 3]), "resetOffsets": moved}
        some = [f"Topic:{name}" for name in ("x", "y*", "z") if rng.random() < 0.5]
        return {"rules": [{"resource": name, "actions": ["Pub"]} for name in some]}

    def _delete(self, plural: str, thing: str, found: dict[str, Any]) -> None:
        owns = (found.get("status") or {}).get("name") == thing
        deletes = found["spec"]["deletionPolicy"] == "Delete"
        alone = len(self._claimants(plural, thing)) == 1
        self._cluster.remove(plural, found["metadata"]["name"])
        self._cluster.world.count("wishes-deleted")
        if owns and deletes and alone:
            self._gone.add((plural, thing))

    # ---- what must come of it

    def judge(self) -> None:
        """Raises Violation."""
        said = self.difference()
        if said:
            raise Violation(f"{self.unsettled}: {said}")
        super().judge()

    def difference(self) -> str:
        """Something that is not as the resources wish; empty when all is."""
        state = self._state()
        if state is None:
            return "no controller runs"
        for plural in KINDS:
            for thing in THINGS:
                said = self._of(plural, thing, state)
                if said:
                    return f"{plural} {thing}: {said}"
        return ""

    def _of(self, plural: str, thing: str, state: Any) -> str:
        held = _held(plural, thing, state)
        claimants = self._claimants(plural, thing)
        if not claimants:
            left = held is not None and (plural, thing) in self._gone
            return "its resource took it along, and it is there" if left else ""
        counts, *others = claimants
        if counts["metadata"].get("deletionTimestamp") is not None:
            return f"{counts['metadata']['name']} is still being deleted"
        for other in others:
            if _ready(other)[:2] != ("False", "AnotherOwnsIt"):
                return f"{other['metadata']['name']} is second and {_ready(other)}"
        status, reason, generation = _ready(counts)
        if generation != counts["metadata"]["generation"]:
            return f"{counts['metadata']['name']} was not looked at"
        if (status, reason) == ("True", "InPlace"):
            if plural == "messageusers":
                return self._of_user(thing, counts, state)
            wished = _wished(plural, counts["spec"])
            if held != wished:
                return f"{held} is there, and {wished} is wished"
            return _moved(counts) if plural == "consumergroups" else ""
        if reason == "ExistsOtherwise" and not counts["spec"]["adopt"]:
            return ""
        if reason == "QueuesWouldShrink" and held is not None:
            return "" if held[0] > counts["spec"]["queues"] else f"{held} would not shrink"
        return f"{counts['metadata']['name']} is {status}, {reason}"

    async def _look_at_offsets(self, thing: str) -> None:
        """Raises Violation: a consumer group is not where its resource had it go."""
        counts = next(iter(self._claimants("consumergroups", thing)), None)
        if counts is None or _ready(counts)[:2] != ("True", "InPlace"):
            return
        moved = counts["spec"]["resetOffsets"]
        async with session(self._cluster.name_servers) as client:
            line = Line(client)
            for queue_id in range(QUEUES):
                where = {"consumerGroup": thing, "topic": READ, "queueId": queue_id}
                asked = {**where, "setZeroIfNotFound": False}
                answer = await line.insist(RequestCode.QUERY_CONSUMER_OFFSET, asked)
                found = int((answer.ext or {})["offset"])
                if moved["to"] == EARLIEST and found:
                    raise Violation(f"{thing} is at {found} of queue {queue_id} after {moved}")
        self._cluster.world.count(f"moved-{moved['to']}")

    def _of_user(self, thing: str, counts: dict[str, Any], state: Any) -> str:
        """Whether the user has the secret of its Secret, and the wished rules."""
        user = state.users.get((CLUSTER, thing))
        if user is None:
            return "there is no such user"
        secret = counts["status"]["secret"]
        secrets = self._cluster.objects("secrets")
        found = [one for one in secrets if one["metadata"]["name"] == secret]
        if not found or b64decode(found[0]["data"]["secretKey"]).decode() != user.secret:
            return f"its secret is not that of {secret}"
        rules = sorted(rule["resource"] for rule in counts["spec"].get("rules", ()))
        held = sorted(rule.resource for rule in user.rules)
        return "" if rules == held else f"it has rules on {held}, and {rules} are wished"

    def _claimants(self, plural: str, thing: str) -> list[dict[str, Any]]:
        """The resources for one thing, the one that counts before the others."""
        field = KINDS[plural][1]
        found = [
            one for one in self._cluster.objects(plural, API) if one["spec"].get(field) == thing
        ]
        return sorted(
            found,
            key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"]["name"]),
        )

    def _found(self, plural: str, name: str) -> dict[str, Any] | None:
        objects = self._cluster.objects(plural, API)
        return next((one for one in objects if one["metadata"]["name"] == name), None)


def _wished(plural: str, spec: dict[str, Any]) -> tuple[int, int] | int:
    return (spec["queues"], spec["queues"]) if plural == "topics" else spec["maxRetries"]


def _moved(resource: dict[str, Any]) -> str:
    """Why a consumer group is not where it was wished to be; empty if it is."""
    asked = resource["spec"]["resetOffsets"]["request"]
    done = resource["status"].get("offsetReset") or {}
    if done.get("request") == asked and done.get("queues") == QUEUES and not done.get("refused"):
        return ""
    return f"request {asked} is wished, and {done or 'none'} was carried out"


def _held(plural: str, thing: str, state: Any) -> Any:
    key = (CLUSTER, GROUP)
    if plural == "topics":
        topic = state.topic_table(key).topics.get(thing)
        return None if topic is None else (topic.read_queue_nums, topic.write_queue_nums)
    if plural == "consumergroups":
        text = state.subscription_table(key).groups.get(thing)
        return None if text is None else decode_body(SubscriptionGroupConfig, text).retry_max_times
    return state.users.get((CLUSTER, thing))


def _ready(resource: dict[str, Any]) -> tuple[str, str, int]:
    for one in (resource.get("status") or {}).get("conditions") or ():
        if one["type"] == "Ready":
            return one["status"], one["reason"], one["observedGeneration"]
    return "", "", -1
