"""Names and ports of the groups of one process, and what is refused in one sentence."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from gantry_broker.host.port_map import GROUPS_MAX, GroupPort, election_priority, port_map
from gantry_broker.host.settings import BrokerSettings
from gantry_protocol.errors import ConfigError
from gantry_protocol.process.config import load_settings


@pytest.mark.parametrize(
    ("entries", "first_port", "expected"),
    [
        (["a", "b"], 100, [("a", 100), ("b", 101)]),
        (["a", "b:500", "c"], 100, [("a", 100), ("b", 500), ("c", 102)]),
        (["s-[08-10]"], 100, [("s-08", 100), ("s-09", 101), ("s-10", 102)]),
        (["s[1-2]x:500", "z"], 100, [("s1x", 500), ("s2x", 501), ("z", 102)]),
        (["a", "b"], 0, [("a", 0), ("b", 0)]),
        (["a", "b:7"], 0, [("a", 0), ("b", 7)]),
    ],
    ids=["in turn", "own port", "range", "range with port", "any port", "any port but one"],
)
def test_a_list_says_who_listens_where(
    entries: list[str], first_port: int, expected: list[tuple[str, int]]
) -> None:
    assert port_map(entries, first_port) == [GroupPort(*one) for one in expected]


@pytest.mark.parametrize(
    ("entries", "first_port", "says"),
    [
        (["a", "a"], 100, "'a' is listed twice"),
        (["a", "b:100"], 100, "'a' and 'b' would share port 100"),
        (["a[1-3]"], 199, "'a3' would listen at port 201, which this process needs itself"),
        (["a[1-3]"], 65534, "'a3' would listen at port 65536"),
        (["../etc"], 100, "cannot name a group"),
        ([".."], 100, "cannot name a group"),
        (["a/b"], 100, "cannot name a group"),
        (["x" * 128], 100, "cannot name a group"),
        (["a:x"], 100, "no port number"),
        (["a:"], 100, "no port number"),
        (["a[3-1]"], 100, "no range"),
        ([f"a[0-{GROUPS_MAX}]"], 100, "no range"),
        (["a[0-599]", "b[0-599]"], 100, f"more than {GROUPS_MAX} groups"),
    ],
)
def test_what_cannot_be_is_refused(entries: list[str], first_port: int, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        port_map(entries, first_port, (201, 202))


def test_masters_are_spread_and_those_of_a_dead_process_over_the_rest() -> None:
    groups = [f"shard-{number:03d}" for number in range(300)]

    def led(brokers: list[str]) -> Counter[str]:
        return Counter(
            min(brokers, key=lambda broker: election_priority(group, broker)) for group in groups
        )

    everybody, survivors = led(["b-0", "b-1", "b-2"]), led(["b-1", "b-2"])
    assert min(everybody.values()) > 70
    assert min(survivors.values()) > 120
    assert survivors["b-1"] > everybody["b-1"] + 25 < survivors["b-2"]


def settings(**values: object) -> BrokerSettings:
    return load_settings(BrokerSettings, {"controllers": "c:1", **values}, env={})


def test_one_group_is_as_it_was() -> None:
    one = settings(group="orders")
    assert one.port_map == [GroupPort("orders", 10911)]
    assert one.identity == {"cluster": "gantry", "group": "orders"}
    assert not one.hosts_many


def test_many_groups_are_a_list_in_a_flag_a_variable_or_a_file() -> None:
    many = settings(groups="a,b-[1-2]", remoting_port="21000")
    assert [at.port for at in many.port_map] == [21000, 21001, 21002]
    assert many.hosts_many
    assert many.identity == {"cluster": "gantry", "holds": "groups"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "group is missing"),
        ({"group": "a", "groups": "b"}, "both set"),
        ({"groups": "a,b"}, "port 10912, which this process needs itself: set remoting_port"),
        (
            {"groups": "a:1", "tier_url": "file:///x", "tier_shard": "s" * 47},
            "tier_shard has 47 characters: with groups it may have 46",
        ),
    ],
)
def test_settings_that_contradict_each_other(values: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        settings(**values)
