"""Routes as clients that speak gRPC get them."""

from __future__ import annotations

from collections import Counter

import pytest
from gantry_protocol.bodies.route import (
    BrokerData,
    MappedQueuesOfGroup,
    QueueData,
    TopicRouteData,
)
from gantry_proxy.core.routes import (
    GroupQueues,
    add_assignments,
    add_queues,
    of_mapped,
    of_message_group,
    queues_of,
    writable,
)
from gantry_proxy.messages import (
    PERMISSIONS,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)

GROUPS = (GroupQueues("a", "10.0.0.1:10911", 3, 2), GroupQueues("b", "10.0.0.2:10911", 1, 0))


@pytest.fixture
def asked() -> QueryRouteRequest:
    made = QueryRouteRequest()
    made.topic.name = "orders"
    made.endpoints.scheme = 1
    made.endpoints.addresses.add(host="10.9.9.9", port=8081)
    return made


def assigned(response: QueryAssignmentResponse) -> list[tuple[str, int]]:
    queues = [item.message_queue for item in response.assignments]
    return [(queue.broker.name, queue.id) for queue in queues]


def test_groups_are_those_with_a_master() -> None:
    data = TopicRouteData(
        broker_datas=[
            BrokerData({0: "10.0.0.1:1", 2: "10.0.0.2:1"}, "a", "c"),
            BrokerData({2: "10.0.0.3:1"}, "b", "c"),
        ],
        queue_datas=[QueueData("b", 6, 4, 4), QueueData("a", 4, 3, 2), QueueData("c", 6, 1, 1)],
        filter_server_table={},
    )
    assert queues_of(data) == (GroupQueues("a", "10.0.0.1:1", 3, 0),)


def test_a_message_group_keeps_its_queue_wherever_that_moves() -> None:
    """Of a mapped topic it is a queue of the cluster, and not one of a group."""

    def route(**takes: list[int]) -> tuple[GroupQueues, ...]:
        mapped = {
            name: MappedQueuesOfGroup(4, dict.fromkeys(numbers, 0))
            for name, numbers in takes.items()
        }
        brokers = [BrokerData({0: f"{name}:1"}, name, "c") for name in takes]
        queues = [QueueData(name, 6, 4, 4) for name in takes]
        return queues_of(TopicRouteData(brokers, queues, {}, None, mapped))

    before, after = route(a=[0, 1], b=[2, 3]), route(a=[3], b=[0, 1, 2])
    names = [f"customer-{number}" for number in range(100)]
    places = [(of_mapped(before, name), of_mapped(after, name)) for name in names]
    assert all(one and other and one[1] == other[1] for one, other in places)
    assert {one[0].broker_name for one, _ in places if one and one[1] == 3} == {"b"}
    assert {other[0].broker_name for _, other in places if other and other[1] == 3} == {"a"}
    assert {one[1] for one, _ in places if one} == {0, 1, 2, 3}
    assert of_mapped(GROUPS, "customer-1") is None
    nobody = of_mapped(route(a=[]), "customer-1")
    assert nobody is not None
    assert nobody[0].broker_name == "a", "which passes it on"


def test_every_queue_is_reached_at_the_client_s_own_endpoint(asked: QueryRouteRequest) -> None:
    response = QueryRouteResponse()
    add_queues(response, asked.topic, asked.endpoints, GROUPS)
    found = [(item.broker.name, item.id, item.permission) for item in response.message_queues]
    both, read = PERMISSIONS["READ_WRITE"], PERMISSIONS["READ"]
    assert found == [("a", 0, both), ("a", 1, both), ("a", 2, read), ("b", 0, read)]
    for item in response.message_queues:
        assert item.broker.endpoints == asked.endpoints
        assert (item.broker.id, item.topic.name) == (0, "orders")


def test_everybody_takes_from_any_queue_of_every_group(asked: QueryRouteRequest) -> None:
    response = QueryAssignmentResponse()
    add_assignments(response, asked.topic, asked.endpoints, GROUPS, in_order=False)
    found = assigned(response)
    assert found == [("a", -1), ("b", -1)]


def test_in_order_each_queue_is_asked_by_itself(asked: QueryRouteRequest) -> None:
    response = QueryAssignmentResponse()
    add_assignments(response, asked.topic, asked.endpoints, GROUPS, in_order=True)
    found = assigned(response)
    assert found == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]


def test_a_queue_that_is_added_moves_its_share_of_message_groups_only() -> None:
    few, more = GroupQueues("a", "x", 8, 8), GroupQueues("a", "x", 8, 9)
    names = [f"customer-{number}" for number in range(900)]
    before = {name: of_message_group(writable([few]), name) for name in names}
    after = {name: of_message_group(writable([more]), name) for name in names}
    moved = [name for name in names if before[name][1] != after[name][1]]
    assert all(after[name][1] == 8 for name in moved)
    assert 50 < len(moved) < 150
    counts = Counter(place[1] for place in before.values())
    assert min(counts.values()) > 60
