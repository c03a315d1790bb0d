"""31003 and 31004: a row of a batch means what the single request means, to every rule."""

from __future__ import annotations

import msgspec
import pytest
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.batches import (
    BATCH_MAX,
    ChangedBody,
    HeartbeatsBody,
    LookRow,
    LooksBody,
    answer_digest,
    heartbeat_row,
)
from gantry_protocol.errors import WireError
from gantry_protocol.headers import to_ext
from gantry_protocol.headers.controller import BrokerHeartbeatRequestHeader
from gantry_protocol.types import BrokerId, Epoch, Offset
from support.controller_dispatcher import CLUSTER, NAME, Harness
from support.metadata_world import three_in_sync


def header(broker_id: int, name: str = NAME, **other: object) -> BrokerHeartbeatRequestHeader:
    fields: dict[str, object] = {
        "epoch": Epoch(2),
        "max_offset": Offset(900),
        "confirm_offset": Offset(800),
        "incarnation": f"i{broker_id}",
        "heartbeat_timeout_ms": 2500,
        "pod_uid": "pod",
        "log_start": Offset(5),
        "tier_state": "uploading",
        "tier_lag_ms": 12,
        "election_priority": broker_id,
    }
    return BrokerHeartbeatRequestHeader(
        CLUSTER,
        f"10.0.0.{broker_id}:1",
        name,
        BrokerId(broker_id),
        **(fields | other),  # type: ignore[arg-type]  # by name
    )


def batch(*headers: BrokerHeartbeatRequestHeader, timeout_ms: int = 2500) -> bytes:
    rows = [heartbeat_row(one) for one in headers]
    return encode_body(HeartbeatsBody(CLUSTER, timeout_ms, rows, "pod"))


async def test_a_row_is_heard_as_a_heartbeat_is(harness: Harness) -> None:
    single, many = Harness(), harness
    for one in (header(1), header(2, draining=True), header(2, incarnation="later")):
        assert single.call(904, to_ext(one)).code == 0
        assert many.call(31003, {}, batch(one, header(9, name="other"))).code == 0
        told, heard = single.row(int(one.broker_id or 0)), many.row(int(one.broker_id or 0))
        assert heard.beat == told.beat
        assert heard.shown == told.shown
        assert heard.connected == told.connected
    await single.close()


async def test_a_closed_connection_speaks_of_every_group_on_it(harness: Harness) -> None:
    names = ("a", "b", "c")
    harness.call(31003, {}, batch(*(header(1, name=name) for name in names)))
    connection = harness.watchman.table.row((CLUSTER, "a"), BrokerId(1))
    assert connection is not None
    assert connection.connection is not None
    harness.watchman.connection_closed(connection.connection)
    assert [name for _, name, _ in harness.watchman.table.closed_members()] == list(names)


async def test_what_is_too_much_or_unreadable_changes_nothing(harness: Harness) -> None:
    too_many = batch(*(header(1, name=str(number)) for number in range(BATCH_MAX + 1)))
    for body in (too_many, b"", b"[]", b'{"clusterName":"c","heartbeatTimeoutMs":1,"rows":[[1]]}'):
        with pytest.raises(WireError):
            harness.call(31003, {}, body)
    assert harness.watchman.brokers_heard() == 0
    rows = [LookRow("g", BrokerId(1), "i", 0)] * (BATCH_MAX + 1)
    with pytest.raises(WireError):
        harness.call(31004, {}, encode_body(LooksBody(CLUSTER, rows)))


async def test_a_look_names_the_groups_of_which_1004_says_something_else(harness: Harness) -> None:
    world = three_in_sync()
    harness.machine.state.groups.update(world.state.groups)
    group = world.group
    cluster, name = group.key
    me = group.members[0]

    def look(digest: int, incarnation: str = me.incarnation, of: str = name) -> list[str]:
        row = LookRow(of, me.broker_id, incarnation, digest)
        answer = harness.call(31004, {}, encode_body(LooksBody(cluster, [row])))
        assert answer.code == 0
        return msgspec.json.decode(answer.body, type=ChangedBody).changed

    ext = {"clusterName": cluster, "brokerName": name, "brokerId": str(me.broker_id)}
    held = answer_digest(harness.call(1004, ext))
    assert look(held) == []
    assert look(0) == [name]
    assert look(held, incarnation="another start") == [name]
    assert look(held, of="unknown") == ["unknown"]
    harness.machine.state.groups[group.key] = msgspec.structs.replace(
        group, master_epoch=Epoch(group.master_epoch + 1)
    )
    assert look(held) == [name]
