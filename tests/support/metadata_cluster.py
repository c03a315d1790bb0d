"""Broker groups of one broker each, in a metadata state machine."""

from __future__ import annotations

import json
from typing import Any

from gantry_controller.metadata.events import (
    ApplyBrokerId,
    CreateTopic,
    DeclareGroup,
    DrainGroup,
    ElectMaster,
    LiveMember,
    PutSubscriptionGroup,
    RegisterBroker,
    TakeTopics,
)
from gantry_controller.metadata.newcomers import may_take
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.topic_table import Topic
from gantry_controller.nameserver import routes
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.metadata_world import CLUSTER, World

FOUR = Topic(4, 4, 6)


class Cluster(World):
    """Groups that serve, by name; see the module."""

    def __init__(self, *serving: str) -> None:
        super().__init__()
        for name in serving:
            self.add(name)
            self.lead(name)

    def add(self, name: str, uid: str = "") -> None:
        event = DeclareGroup(
            cluster=CLUSTER, name=name, uid=uid or f"u-{name}", replicas=1, min_in_sync_replicas=1
        )
        assert self.apply(event).ok

    def lead(self, name: str) -> None:
        """The group's only broker becomes its master, for the first time."""
        key = {"cluster": CLUSTER, "name": name}
        one = BrokerId(self.state.groups[CLUSTER, name].next_broker_id)
        self.apply(ApplyBrokerId(**key, broker_id=one, check_code=f"{name};1"))
        self.apply(RegisterBroker(**key, broker_id=one, address=f"{name}:1", incarnation=name))
        live = (LiveMember(one, name, Epoch(7), Offset(10)),)
        assert self.apply(ElectMaster(**key, live=live, first_wait_over=True)).ok

    def topic(self, topic: str, *names: str, config: Topic = FOUR) -> None:
        for name in names or ("",):
            event = CreateTopic(cluster=CLUSTER, name=name, topic=topic, config=config)
            assert self.apply(event).ok

    def settings(self, group: str, *names: str, config: bytes = b"{}") -> None:
        for name in names:
            event = PutSubscriptionGroup(cluster=CLUSTER, name=name, group=group, config=config)
            assert self.apply(event).ok

    def topics_of(self, name: str) -> dict[str, Topic]:
        return dict(self.state.topic_table((CLUSTER, name)).topics)

    def queues_of(self, name: str) -> dict[str, int]:
        return {topic: item.write_queue_nums for topic, item in self.topics_of(name).items()}

    def settings_of(self, name: str) -> dict[str, bytes]:
        return dict(self.state.subscription_table((CLUSTER, name)).groups)

    def take(self, name: str, *, beside: bool = False) -> Result:
        return self.apply(TakeTopics(cluster=CLUSTER, name=name, beside=beside))

    def may_take(self, name: str) -> bool:
        return may_take(self.state, self.state.groups[CLUSTER, name])

    def drain(self, name: str, uid: str | None = None) -> Result:
        return self.apply(DrainGroup(cluster=CLUSTER, name=name, uid=uid, at_ms=5))

    def perms(self, topic: str) -> dict[str, int]:
        """By group, the permission that a route shows."""
        return {item["brokerName"]: item["perm"] for item in self.route(topic)["queueDatas"]}

    def route(self, topic: str) -> Any:
        work = routes.topic_route(self.state, topic)
        try:
            while True:
                next(work)
        except StopIteration as end:
            return json.loads(end.value.body)
