"""Offset ids and unique keys."""

import pytest
from gantry_protocol.errors import RecordError
from gantry_protocol.records import UniqueKeys, decode_offset_msg_id, offset_msg_id
from hypothesis import given
from hypothesis import strategies as st


def test_upstreams_sample() -> None:
    message_id = offset_msg_id("10.0.0.2", 10911, 4096)
    assert message_id == "0A00000200002A9F0000000000001000"
    assert decode_offset_msg_id(message_id) == (("10.0.0.2", 10911), 4096)
    assert decode_offset_msg_id(message_id.lower()) == (("10.0.0.2", 10911), 4096)


@given(ip=st.ip_addresses().map(str), port=st.integers(0, 65535), offset=st.integers(0, 2**63 - 1))
def test_offset_ids_survive(ip: str, port: int, offset: int) -> None:
    message_id = offset_msg_id(ip, port, offset)
    assert len(message_id) == (56 if ":" in ip else 32)
    assert decode_offset_msg_id(message_id) == ((ip, port), offset)


@pytest.mark.parametrize("text", ["", "0A", "0A" * 15, "0A" * 17, "xy" * 16, " 0A" * 16, "é" * 32])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RecordError, match="is no offset id"):
        decode_offset_msg_id(text)


def test_unique_keys_have_upstreams_form_and_differ() -> None:
    keys = UniqueKeys("10.0.0.1", loader_hash=0xCAFEBABE)
    # 2023-11-14 22:13:20.123 UTC: 13 days, 22:13:20.123 into the month
    drawn = [keys.next(1_700_000_000_123) for _ in range(1000)]
    assert len(set(drawn)) == 1000
    assert all(len(key) == 32 and key == key.upper() for key in drawn)
    assert drawn[0][:8] == "0A000001"
    assert drawn[0][12:20] == "CAFEBABE"
    assert int(drawn[0][20:28], 16) == ((13 * 24 + 22) * 60 + 13) * 60_000 + 20_123


def test_unique_keys_of_an_ipv6_host_are_longer() -> None:
    assert len(UniqueKeys("::1").next(0)) == 56


def test_keys_tell_whose_they_are() -> None:
    """Of two starts with one address and process id, as containers have, each knows its own."""
    first, second = UniqueKeys("10.0.0.1", loader_hash=1), UniqueKeys("10.0.0.1", loader_hash=2)
    assert first.made(first.next(1_700_000_000_123))
    assert first.made(first.next(1_800_000_000_000))
    assert not first.made(second.next(1_700_000_000_123))
    assert not first.made("")
