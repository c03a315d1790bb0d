"""The answer to a send, made from a template, is byte for byte the one the codec makes."""

from __future__ import annotations

import pytest
from gantry_protocol.command import request
from gantry_protocol.frame import encode, reply
from gantry_protocol.records import offset_msg_id
from gantry_protocol.send_answer import OFFSETS_MAX, SendAnswers
from hypothesis import given
from hypothesis import strategies as st

ADDED = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
INT32 = st.integers(-(2**31), 2**31 - 1)
INT63 = st.integers(0, 2**63 - 1)
UNIQUE_KEYS = (
    st.none()
    | st.from_regex(r"\A[0-9A-F]{32}\Z")
    | st.sampled_from(["a,b", 'a"b', "a\\b", "\x07", "é", "٣", "%s", "{0}"])
    | st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
)


@given(
    host=st.sampled_from(["10.0.0.2", "2001:db8::7"]),
    port=st.integers(1, 65535),
    opaque=INT32,
    offsets=st.lists(INT63, min_size=1, max_size=40),
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=INT63,
    unique_key=UNIQUE_KEYS,
)
def test_it_is_what_the_codec_makes(
    host, port, opaque, offsets, queue_id, queue_offset, unique_key
) -> None:
    asked = request(310)
    asked.opaque = opaque
    ext = {
        "msgId": ",".join(offset_msg_id(host, port, offset) for offset in offsets),
        "queueId": str(queue_id),
        "queueOffset": str(queue_offset),
        **ADDED,
    }
    if unique_key is not None:
        ext["transactionId"] = unique_key
    answers = SendAnswers(host, port, ADDED)
    made = answers.frame(opaque, offsets, queue_id, queue_offset, unique_key)
    assert made == encode(reply(asked, ext=ext))


@pytest.mark.parametrize("count", [0, OFFSETS_MAX + 1])
def test_it_names_some_records_and_not_too_many(count) -> None:
    with pytest.raises(AssertionError, match="an answer for"):
        SendAnswers("10.0.0.2", 10911, ADDED).frame(1, [0] * count, 0, 0, None)
