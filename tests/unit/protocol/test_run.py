"""Runs of records: what a batch send becomes without an object per message."""

import pytest
from gantry_protocol.errors import RecordError
from gantry_protocol.records import (
    BatchMessage,
    MessageRecord,
    encode_batch,
    encode_record,
    offset_msg_id,
    offset_msg_ids,
    scan_run,
    split_batch,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

V4, V6 = ("10.0.0.7", 40_000), ("2001:db8::7", 10_911)
COMMON = MessageRecord(
    topic="T", queue_id=3, sys_flag=1, born_timestamp=77, born_host=V4, store_host=V4,
    reconsume_times=2,
)  # fmt: skip
SPECIAL = (b"DELAY", b"TIMER_D")
MESSAGES = st.builds(
    BatchMessage,
    body=st.binary(min_size=1, max_size=40),
    properties=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    flag=st.integers(-(2**31), 2**31 - 1),
)


@pytest.mark.parametrize("born", [V4, V6])
@pytest.mark.parametrize("store", [V4, V6])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "t" * 128, "Ü"])
@given(messages=st.lists(MESSAGES, min_size=1, max_size=5))
def test_a_run_is_the_records_of_its_messages(born, store, topic, messages) -> None:
    common = replace(COMMON, topic=topic, born_host=born, store_host=store)
    run = scan_run(encode_batch(messages), common)
    assert run is not None
    expected, at = [], 1000
    for number, message in enumerate(messages, 5):
        record = replace(
            common, body=message.body, properties=message.properties, flag=message.flag,
            queue_offset=number, physical_offset=at, store_timestamp=99,
        )  # fmt: skip
        expected.append(encode_record(record))
        at += len(expected[-1])
    assert run.encode(5, 1000, 99) == b"".join(expected)
    assert run.sizes == [len(one) for one in expected]
    assert len(run) == len(messages)
    assert [(one.body, one.properties, one.flag) for one in run] == [
        (one.body, one.properties, one.flag) for one in messages
    ]


@given(st.binary(max_size=120) | MESSAGES.map(lambda one: encode_batch([one] * 2)), st.data())
def test_no_run_has_what_the_long_way_refuses(body: bytes, data: st.DataObject) -> None:
    if body:
        at = data.draw(st.integers(0, len(body) - 1))
        body = body[:at] + bytes((data.draw(st.integers(0, 255)),)) + body[at + 1 :]
    run = scan_run(body, COMMON)
    if run is None:
        return
    messages = split_batch(body)
    assert [one.body for one in run] == [one.body for one in messages]
    assert all(one.body and "\0" not in one.properties for one in messages)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(BatchMessage(b"", "A\x01b\x02"), id="no body"),
        pytest.param(BatchMessage(b"x", "A\x01\0\x02"), id="zero byte"),
        pytest.param(BatchMessage(b"x", "DELAY\x013\x02"), id="a delay"),
        pytest.param(BatchMessage(b"x", "TIMER_DELAY_MS\x013\x02"), id="a timer"),
    ],
)
def test_what_needs_a_look_by_itself_gives_no_run(message: BatchMessage) -> None:
    usual = BatchMessage(b"x", "A\x01b\x02")
    assert scan_run(encode_batch([usual]), COMMON, SPECIAL) is not None
    assert scan_run(encode_batch([usual, message, usual]), COMMON, SPECIAL) is None


def test_properties_that_are_text_only_together_give_no_run() -> None:
    body = bytearray(encode_batch([BatchMessage(b"x", "ab"), BatchMessage(b"y", "cd")]))
    body[body.index(b"b")], body[body.index(b"c")] = "é".encode()
    assert scan_run(bytes(body), COMMON) is None


def test_numbers_that_fit_no_record_are_refused() -> None:
    run = scan_run(encode_batch([BatchMessage(b"x")]), replace(COMMON, queue_id=2**31))
    assert run is not None
    with pytest.raises(RecordError, match="does not fit"):
        run.encode(0, 0, 0)


@pytest.mark.parametrize("host", [V4, V6])
def test_ids_of_several_records(host: tuple[str, int]) -> None:
    offsets = [0, 17, 2**62]
    assert offset_msg_ids(*host, offsets).split(",") == [
        offset_msg_id(*host, one) for one in offsets
    ]
