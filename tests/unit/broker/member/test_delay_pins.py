"""What is parked keeps the log that it stands in, on masters and replicas."""

from __future__ import annotations

import pytest
from gantry_broker.clients.core.delay.levels import DelayLevels
from gantry_broker.clients.core.delay.parked import PROGRESS_GROUP, park, park_timer
from gantry_broker.member.pins import oldest_parked
from gantry_broker.store.tables.offsets import rows_record
from gantry_protocol.records.properties import SCHEDULE_TOPIC
from support import stores

LEVELS = DelayLevels.parse("1s 5s")


@pytest.fixture
def store(tmp_path):
    made = stores.open_store(tmp_path)
    yield made
    made.log.close()


def test_the_oldest_message_of_any_level_that_is_not_delivered_yet(store) -> None:
    assert oldest_parked(store) is None
    stores.put(store, stores.message())
    parked = [park(stores.message(), level, LEVELS) for level in (2, 1, 1)]
    at = [one.offset for one in stores.put(store, *parked)]
    assert oldest_parked(store) is None, "what is not confirmed pins nothing: it is not trimmed"
    stores.confirm(store)
    assert oldest_parked(store) == at[0]
    for level, position, oldest in [(2, 1, at[1]), (1, 1, at[2]), (1, 2, None)]:
        row = (PROGRESS_GROUP, SCHEDULE_TOPIC, level - 1, position)
        stores.put(store, rows_record([row]))
        stores.confirm(store)
        assert oldest_parked(store) == oldest


def test_a_message_that_waits_for_its_moment_does_so_too(store) -> None:
    (at,) = stores.put(store, park_timer(stores.message(), 5_000, 1))
    stores.confirm(store)
    assert oldest_parked(store) == at.offset
