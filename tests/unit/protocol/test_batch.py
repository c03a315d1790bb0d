"""Bodies of batch sends."""

import pytest
from gantry_protocol.errors import RecordError
from gantry_protocol.records import BatchMessage, encode_batch, split_batch
from hypothesis import given
from hypothesis import strategies as st

GOLDEN = bytes.fromhex(
    "00000039000000000000000000000000000000036f6e650020700171024b455953016b3102574149540174727565"
    "0254414753015461674102000000230000000000000000000000000000000374776f000a57414954017472756502"
)
MESSAGES = [
    BatchMessage(b"one", "p\x01q\x02KEYS\x01k1\x02WAIT\x01true\x02TAGS\x01TagA\x02"),
    BatchMessage(b"two", "WAIT\x01true\x02"),
]


def test_upstreams_sample() -> None:
    assert split_batch(GOLDEN) == MESSAGES
    assert encode_batch(MESSAGES) == GOLDEN


@given(
    st.lists(
        st.builds(
            BatchMessage,
            body=st.binary(max_size=30),
            properties=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
            flag=st.integers(-(2**31), 2**31 - 1),
        ),
        max_size=5,
    )
)
def test_batches_survive(messages: list[BatchMessage]) -> None:
    assert split_batch(encode_batch(messages)) == messages


@pytest.mark.parametrize("size", [1, 19, 22, 30, 57, 60, len(GOLDEN) - 1])
def test_a_cut_batch_is_refused(size: int) -> None:
    if size == 57:
        assert split_batch(GOLDEN[:size]) == MESSAGES[:1]
        return
    with pytest.raises(RecordError):
        split_batch(GOLDEN[:size])


@given(st.binary(max_size=80))
def test_arbitrary_bytes_split_or_are_refused(body: bytes) -> None:
    try:
        messages = split_batch(body)
    except RecordError:
        return
    assert sum(len(message.body) for message in messages) <= len(body)


def test_lengths_that_lead_out_are_refused() -> None:
    for position in (16, 23):
        body = bytearray(GOLDEN)
        body[position : position + 2] = b"\xff\xff"
        with pytest.raises(RecordError, match=r"claims -\d+ bytes"):
            split_batch(bytes(body))


def test_properties_beyond_an_int16_are_refused() -> None:
    with pytest.raises(RecordError, match="32768 bytes"):
        encode_batch([BatchMessage(b"", "p" * 32768)])
