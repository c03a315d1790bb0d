"""The bytes of events: every kind survives them, and what is not understood stops the reader."""

from typing import Any

import msgspec
import pytest
from gantry_controller.metadata import events
from gantry_controller.metadata.clients import Client, ConsumerGroup, QueueOwner, Subscription
from gantry_controller.metadata.events import (
    DeclareGroup,
    ElectMaster,
    Event,
    LiveMember,
    UnknownEventError,
    decode_event,
    encode_event,
)
from gantry_controller.metadata.machine import MetadataStateMachine
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.access.rules import make_rule
from gantry_protocol.types import BrokerId, Epoch, Index, Offset, Term

LIVE = (LiveMember(broker_id=BrokerId(2), epoch=Epoch(3), max_offset=Offset(2**60)),)
GROUP: dict[str, Any] = {"cluster": "c", "name": "b"}
TOPIC = Topic(4, 4, 6, 0, True)

SAMPLES: list[Event] = [
    DeclareGroup(**GROUP, uid="u", replicas=3, min_in_sync_replicas=2, route_address="r:1"),
    events.RemoveGroup(**GROUP, uid="u"),
    events.RetireGroup(**GROUP, uid="u"),
    events.ForgetMember(**GROUP, broker_id=BrokerId(3), incarnation="3-1", live=LIVE),
    events.FenceMember(**GROUP, broker_id=BrokerId(3), fenced=True, live=LIVE),
    events.ApplyBrokerId(**GROUP, broker_id=BrokerId(1), check_code="h:1;2"),
    events.RegisterBroker(**GROUP, broker_id=BrokerId(1), address="h:1", ha_port=10912),
    ElectMaster(**GROUP, requester=BrokerId(1), designate=True, live=LIVE, first_wait_over=True),
    events.AlterSyncStateSet(
        **GROUP,
        master_id=BrokerId(1),
        master_epoch=Epoch(2),
        new_set=(BrokerId(1), BrokerId(2)),
        expected_set_epoch=3,
        live=LIVE,
    ),
    events.RaiseFloors(
        rows=(events.FloorRow("c", "b", Epoch(3), Epoch(2), Offset(2**60)),),
    ),
    events.AcceptLoss(
        **GROUP,
        broker_id=BrokerId(1),
        expected_epoch=Epoch(2),
        floor_offset=Offset(9),
        live=LIVE,
        at_ms=1,
    ),
    events.AdoptGroup(**GROUP, epoch=Epoch(7), expected_epoch=Epoch(0)),
    events.CleanBrokerData(**GROUP, broker_ids=(BrokerId(1),), clean_living=True),
    events.CreateTopic(**GROUP, topic="t", config=TOPIC),
    events.DeleteTopic(**GROUP, topic="t"),
    events.ImportBroker(**GROUP, broker_id=0, address="h:1", topics={"t": TOPIC}),
    events.ForgetImport(**GROUP, address="h:1"),
    events.PutSubscriptionGroup(**GROUP, group="g", config=b"{}"),
    events.DeleteSubscriptionGroup(**GROUP, group="g"),
    events.ForgetConsumers(cluster="c", name="a", master_epoch=Epoch(3)),
    events.ReportConsumers(
        **GROUP,
        broker_id=BrokerId(1),
        master_epoch=Epoch(2),
        groups={"g": ConsumerGroup((Client("a"),), (Subscription("t"),)), "h": None},
    ),
    events.ReportLocks(
        **GROUP,
        broker_id=BrokerId(1),
        master_epoch=Epoch(2),
        serial=3,
        groups={"g": (QueueOwner("t", 0, "a"), QueueOwner("t", 1, ""))},
    ),
    events.PutKv(namespace="n", key="k", value="v"),
    events.DeleteKv(namespace="n", key="k"),
    events.SetWritable(**GROUP, writable=False),
    events.ChangeSettings(settings={"orderMessageEnable": "true"}),
    events.ReportTopic(topic="t", queues={"b": TOPIC}),
    events.ReportTopics(**GROUP, broker_id=BrokerId(1), master_epoch=Epoch(8), topics={"t": TOPIC}),
    events.DeclareFronts(cluster="c", name="f", address="10.0.0.1", first_port=10950, ports=16),
    events.RemoveFronts(cluster="c", name="f"),
    events.TakeTopics(**GROUP, shares=True),
    events.TakeShare(**GROUP),
    events.DrainGroup(**GROUP, uid="u", at_ms=7),
    events.EndDrain(**GROUP),
    events.MapQueues(cluster="c", topic="t", queues=3, places=((0, "b"), (2, "a")), epoch=9),
    events.SealQueues(
        **GROUP, broker_id=BrokerId(1), master_epoch=Epoch(8), topic="t", ends=((0, 7), (3, 0))
    ),
    events.ReleaseSegments(
        **GROUP, broker_id=BrokerId(1), master_epoch=Epoch(8), topic="t", least=((0, 4096, 7),)
    ),
    events.CreateUser(cluster="c", user="u", secret="12345678", kind="Normal", status="enable"),
    events.UpdateUser(cluster="c", user="u", secret="87654321", status="disable"),
    events.DeleteUser(cluster="c", user="u"),
    events.PutRules(cluster="c", user="u", rules=(make_rule("Topic:t*", ["Pub", "Sub"]),)),
    events.DeleteRules(cluster="c", user="u", policy="Custom", resource="Topic:t*"),
    events.SetAccess(cluster="c", enabled=True),
]


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_round_trip(event: Event) -> None:
    assert decode_event(encode_event(event)) == event


def test_every_event_has_a_sample() -> None:
    assert {type(sample) for sample in SAMPLES} == set(Event.__args__)


@pytest.mark.parametrize("event", SAMPLES, ids=lambda event: type(event).__name__)
def test_type_carries_a_version(event: Event) -> None:
    name = type(event).__name__
    assert msgspec.msgpack.decode(encode_event(event))["type"] == f"{name}/1"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xc1", id="no msgpack"),
        pytest.param(
            msgspec.msgpack.encode({"type": "ElectMaster/2", "cluster": "c", "name": "b"}),
            id="newer layout",
        ),
        pytest.param(
            msgspec.msgpack.encode({"type": "ElectMaster/1", "cluster": "c", "name": "b", "x": 1}),
            id="unknown field",
        ),
        pytest.param(msgspec.msgpack.encode({"type": "ElectMaster/1"}), id="missing field"),
    ],
)
def test_what_is_not_understood_stops_the_machine(data: bytes) -> None:
    machine = MetadataStateMachine()
    before = machine.state.digest()
    with pytest.raises(UnknownEventError, match="cannot read"):
        machine.apply(Index(1), Term(1), data)
    assert machine.state.digest() == before


def test_listeners_hear_of_changes_only_and_in_order() -> None:
    machine = MetadataStateMachine()
    heard: list[Index] = []

    def listen(_event: Event, result: Result) -> None:
        assert result.group is not None
        heard.append(result.group.changed_index)

    machine.add_listener(listen)
    command = encode_event(SAMPLES[0])
    machine.apply(Index(5), Term(1), command)
    machine.apply(Index(6), Term(1), command)
    machine.apply(Index(7), Term(1), encode_event(SAMPLES[2]))
    assert heard == [5, 7]
