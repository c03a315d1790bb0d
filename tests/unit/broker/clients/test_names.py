"""No request brings a name that can be none past the door, whatever its code."""

from __future__ import annotations

from contextlib import suppress

import msgspec
import pytest
from gantry_broker.clients import ClientProcessor
from gantry_protocol import names
from gantry_protocol.bodies import (
    ConsumerData,
    HeartbeatData,
    LockBatchBody,
    ProducerData,
    SubscriptionData,
    encode_body,
)
from gantry_protocol.errors import GantryError
from gantry_protocol.headers import brokeradmin, codec
from gantry_protocol.headers import client as client_headers

POISON = "x" * 5_500_000
# What any header may want, with values that are of no harm.
ANYTHING = {
    wire: "TopicTest" if "str" in str(field.type) else "false" if "bool" in str(field.type) else "0"
    for module in (client_headers, brokeradmin)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    for wire, field in zip(kind.__struct_encode_fields__, msgspec.structs.fields(kind), strict=True)
}


async def test_every_code_that_takes_a_name_refuses_one_that_is_none(
    client, processor: ClientProcessor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "_sound", {})  # whatever another test believed
    seen: list[msgspec.Struct] = []
    check = codec.check_names
    monkeypatch.setattr(
        codec, "check_names", lambda header: (seen.append(header), check(header))[1]
    )
    asking = set()
    for code in processor._handlers:
        seen.clear()
        with suppress(GantryError):
            client.ask(code, dict(ANYTHING))
        for kind in {type(header) for header in seen}:
            wire = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
            for attribute, _, _ in names.checked_fields(kind):
                asking.add(code)
                answer = client.call(code, {**ANYTHING, wire[attribute]: POISON})
                assert answer.code == 29, (code, attribute)
                assert "max length" in (answer.remark or "")
    assert len(asking) >= 25, "of nearly fifty codes"
    assert not any(len(row[0]) > 255 for row in processor._view.store.committed.all())


async def test_a_send_to_what_is_no_topic(client) -> None:
    for code, name in ((10, "topic"), (310, "b")):
        assert client.call(code, {**ANYTHING, name: POISON}).code == 29


async def test_a_heartbeat_passes_over_names_that_can_be_none(client, processor) -> None:
    def consumer(group: str, *topics: str) -> ConsumerData:
        return ConsumerData(group, subscription_data_set=[SubscriptionData(one) for one in topics])

    data = HeartbeatData(
        "me",
        [ProducerData("p.1"), ProducerData(POISON)],
        [consumer("good", "TopicTest", POISON), consumer("a b", "TopicTest"), consumer(POISON)],
    )
    assert client.call(34, body=encode_body(data)).code == 0
    sessions = processor._sessions
    assert set(sessions._consumers) == {"good"}
    assert set(sessions.group("good").topics) == {"TopicTest"}
    assert set(sessions._producers) == {"p.1"}
    assert client.call(34, body=encode_body(HeartbeatData(POISON))).code == 29


async def test_locks(client) -> None:
    for body in (LockBatchBody(POISON, "c", []), LockBatchBody("g", POISON, [])):
        for code in (41, 42):
            assert client.call(code, body=encode_body(body)).code == 29
