"""From where on the log is kept for transactions and POP, on the master and on its replicas."""

from __future__ import annotations

from pathlib import Path

import pytest
from gantry_broker.clients.core.pop.records import GROUP as POP_GROUP
from gantry_broker.clients.core.pop.records import POP_TOPIC
from gantry_broker.member.pins import pop_pin, transaction_pins
from gantry_broker.queues import MessageStore
from support import stores
from support.transactions import GROUP, HALF, OPS


@pytest.fixture
def store(tmp_path: Path):
    made = stores.open_store(tmp_path)
    yield made
    made.log.close()


def _put(store: MessageStore, topic: str) -> int:
    (at,) = stores.put(store, stores.message(topic))
    stores.confirm(store)
    return at.offset


def test_nothing_is_kept_where_there_are_no_transactions(store: MessageStore) -> None:
    _put(store, "T")
    assert transaction_pins(store) == ()


def test_everything_is_kept_before_the_first_table(store: MessageStore) -> None:
    first, _ = _put(store, HALF), _put(store, HALF)
    op, _ = _put(store, OPS), _put(store, OPS)
    assert transaction_pins(store) == (first, op)


@pytest.mark.parametrize("role", ["master", "replica"])
def test_what_is_open_is_kept_from_its_half_message_on(store: MessageStore, role: str) -> None:
    halves = [_put(store, HALF) for _ in range(4)]
    ops = [_put(store, OPS) for _ in range(3)]
    store.offsets.commit(GROUP, HALF, 0, 2)
    store.offsets.commit(GROUP, OPS, 0, 1)
    records, _ = store.offsets.take_records()
    store.put(records, now_ms=1)
    stores.confirm(store)
    if role == "replica":
        store.drop_mastership()
    assert transaction_pins(store) == (halves[2], ops[1])


def test_what_has_ended_is_not_kept(store: MessageStore) -> None:
    _put(store, HALF)
    store.offsets.commit(GROUP, HALF, 0, 1)
    assert transaction_pins(store) == ()
    later = _put(store, HALF)
    assert transaction_pins(store) == (later,)


def test_the_log_is_kept_from_the_newest_table_of_pops_on(store: MessageStore) -> None:
    pops = [_put(store, POP_TOPIC) for _ in range(3)]
    assert pop_pin(store) == pops[0]
    store.offsets.commit(POP_GROUP, POP_TOPIC, 0, 2)
    assert pop_pin(store) == pops[2]
    assert transaction_pins(store) == ()
