"""What tenants may do: who a tenant is, and when a quota lets its next message pass."""

from __future__ import annotations

import pytest
from gantry_broker.clients.quotas import (
    BURST_S,
    MAX_TENANTS,
    Meter,
    tenant_of,
)
from gantry_protocol.errors import ConfigError
from gantry_protocol.settings.quotas import Quota, Quotas, parse_quotas
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("topic", "tenant"),
    [
        ("orders", ""),
        ("MQ_INST_1%orders", "MQ_INST_1"),
        ("%RETRY%MQ_INST_1%readers", "MQ_INST_1"),
        ("%DLQ%readers", ""),
        ("%RETRY%readers", ""),
        ("a%b%c", "a"),
    ],
)
def test_a_tenant_is_a_namespace(topic: str, tenant: str) -> None:
    assert tenant_of(topic) == tenant


def test_a_burst_passes_and_the_rest_waits_its_turn() -> None:
    meter = Meter(Quotas(Quota(sends_per_second=8)))
    waits = [meter.send("a", 1, 100, 50.0, 1.0) for _ in range(21)]
    assert waits[:9] == [0.0] * 9
    assert waits[9:17] == [0.125 * n for n in range(1, 9)]
    assert waits[17:] == [None] * 4, "beyond patience nothing is granted, and nothing is charged"
    assert meter.send("b", 1, 100, 50.0, 1.0) == 0.0, "another tenant waits for nobody"
    assert meter.send("a", 1, 100, 53.0, 1.0) == 0.0, "time pays"


def test_named_tenants_have_their_own_quota_and_zero_is_none() -> None:
    quotas = parse_quotas('{"perTenant": {"sendBytesPerSecond": 10}, "tenants": {"vip": {}}}')
    meter = Meter(quotas)
    assert [meter.send("vip", 1, 1000, 0.0, 1.0) for _ in range(9)] == [0.0] * 9
    assert meter.send("a", 1, 1000, 0.0, 1.0) == 0.0, "what is larger than a second's worth passes"
    assert meter.send("a", 1, 1000, 0.0, 1.0) is None


def test_reads_are_paid_afterwards() -> None:
    meter = Meter(Quotas(Quota(read_bytes_per_second=1000)))
    assert meter.read_wait_s("a", 0.0) == 0.0
    meter.read("a", 5000, 0.0)
    assert meter.read_wait_s("a", 0.0) == 5.0 - BURST_S
    assert meter.read_wait_s("a", 4.0) == 0.0


def test_tenants_are_bounded() -> None:
    meter = Meter(Quotas(Quota(sends_per_second=1)))
    for number in range(MAX_TENANTS):
        assert meter.send(f"t{number}", 1, 0, 0.0, 1.0) == 0.0
    together = [meter.send(f"more{number}", 1, 0, 0.0, 1.0) for number in range(9)]
    assert together.count(None) == 6, "who is too many shares one quota"
    assert len(meter._ledgers) == MAX_TENANTS + 1
    assert meter.send("later", 1, 0, 9.0, 1.0) == 0.0
    assert len(meter._ledgers) == 1, "whoever has paid is forgotten"


@given(
    st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 50)), min_size=1, max_size=200),
    st.integers(1, 100),
)
def test_no_second_gets_more_than_its_share(steps: list[tuple[float, int]], rate: int) -> None:
    """In any stretch of t seconds at most a burst, t seconds' worth and one request pass."""
    meter, now_s, passed = Meter(Quotas(Quota(sends_per_second=rate))), 100.0, []
    for pause_s, count in steps:
        now_s += pause_s
        wait_s = meter.send("a", count, 0, now_s, 1.0)
        if wait_s is not None:
            passed.append((now_s + wait_s, count))
    for first, (start_s, _) in enumerate(passed):
        total = 0
        for at_s, count in passed[first:]:
            assert total <= rate * (at_s - start_s + BURST_S) + 0.002 * rate
            total += count


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"perTenant": {"sends": 1}}', '{"tenants": {"a": {"sendsPerSecond": -1}}}'],
)
def test_what_is_no_quota_is_one_sentence(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_quotas(text)
