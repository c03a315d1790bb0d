"""Messages by key (12)."""

from __future__ import annotations

from typing import Any

import pytest
from gantry_protocol.records import decode_records
from support import stores
from support.group_view import FakeGroup

NOW_MS = 1_800_000_000_000
ASKED: dict[str, object] = {
    "topic": "TopicTest",
    "key": "order-7",
    "maxNum": 10,
    "beginTimestamp": 0,
    "endTimestamp": (1 << 63) - 1,
}


@pytest.fixture
def filled(group: FakeGroup) -> FakeGroup:
    for number in range(3):
        record = stores.message("TopicTest", 1, b"%d" % number)
        record.properties = f"KEYS\x01order-7 all\x02UNIQ_KEY\x01U{number}\x02"
        stores.put(group.messages, record, now_ms=NOW_MS + number)
    stores.confirm(group.messages)
    return group


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        pytest.param({}, [2, 1, 0], id="a word of the keys, newest first"),
        pytest.param({"maxNum": 2}, [2, 1], id="at most"),
        pytest.param({"beginTimestamp": NOW_MS + 1, "endTimestamp": NOW_MS + 1}, [1], id="by time"),
        pytest.param({"key": "U1"}, [1], id="a unique key, not said so"),
        pytest.param({"key": "U1", "_UNIQUE_KEY_QUERY": "true"}, [1], id="a unique key"),
        pytest.param({"key": "U1", "indexType": "U", "maxNum": 0}, [1], id="by the newer name"),
        pytest.param({"_UNIQUE_KEY_QUERY": "true"}, None, id="no unique key"),
        pytest.param({"topic": "Other"}, None, id="of another topic"),
        pytest.param({"key": "order"}, None, id="no part of a word"),
    ],
)
async def test_messages_by_key(client, filled, changes: dict[str, Any], found) -> None:
    answer = client.call(12, {**ASKED, **changes})
    ext = answer.ext or {}
    assert ext["indexLastUpdateTimestamp"] == str(NOW_MS + 2)
    assert int(ext["indexLastUpdatePhyoffset"]) > 0
    if found is None:
        assert answer.code == 22
    else:
        assert answer.code == 0
        assert [int(record.body) for record in decode_records(answer.body)] == found
