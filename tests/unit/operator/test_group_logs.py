"""Logs of many pods as one: their order, who is named, and how they are followed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest
from gantry_operator.api.errors import Unavailable
from gantry_operator.api.kinds import BROKER_GROUP, CONTROLLER_GROUP, FRONT_GROUP, POD
from gantry_operator.support import group_logs
from gantry_operator.support.group_logs import LogFollower, LogsWanted, find, read, show, sources
from gantry_operator.support.log_lines import Prefixes, lines_of, merged, moment_ns, parsed
from gantry_protocol.errors import GantryError
from unit.operator.fake_support import FakeSupport

S = 1_000_000_000
DAY = 1_796_040_000 * S
"""2026-11-30T12:00:00Z."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-30T12:00:00Z x", DAY),
        ("2026-11-30T12:00:00.5Z x", DAY + S // 2),
        ("2026-11-30T12:00:00.000000001Z x", DAY + 1),
        ("2026-11-30T12:00:00.1234567891Z", DAY + 123_456_789),
        ("2026-11-30T14:00:00+02:00 x", DAY),
        ("2026-13-30T12:00:00Z x", None),
        ("event=x", None),
        ("", None),
    ],
)
def test_times(text: str, expected: int | None) -> None:
    assert moment_ns(text) == expected


def test_a_line_tells_its_time_once() -> None:
    ours = parsed("2026-11-30T12:00:01.5Z time=2026-11-30T12:00:01.498Z level=info", 0)
    assert (ours.at_ns, ours.text) == (DAY + 3 * S // 2, "time=2026-11-30T12:00:01.498Z level=info")
    assert ours.stamp == "2026-11-30T12:00:01.5Z"
    foreign = parsed("2026-11-30T12:00:01Z GET /", 0)
    assert (foreign.at_ns, foreign.text) == (DAY + S, "2026-11-30T12:00:01Z GET /")
    unstamped = parsed("time=2026-11-30T12:00:02Z level=info", 0)
    assert (unstamped.at_ns, unstamped.stamp) == (DAY + 2 * S, "")
    assert parsed("  File x.py", DAY).at_ns == DAY, "a traceback belongs to what it follows"


def test_a_log_is_in_order_whatever_its_clock_does() -> None:
    found = list(
        lines_of("2026-11-30T12:00:05Z a\n2026-11-30T12:00:01Z b\nc\n2026-11-30T12:00:06Z d\n")
    )
    assert [line.at_ns - DAY for line in found] == [5 * S, 5 * S, 5 * S, 6 * S]


def pod(
    api: FakeSupport, name: str, component: str, group: str, *containers: str, **labels: str
) -> None:
    all_labels = {
        "app.kubernetes.io/name": "gantry",
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/instance": group,
    }
    statuses = [{"name": one, "state": {"running": {}}} for one in containers or (component,)]
    all_labels |= {f"mq.gantry.dev/{key}": value for key, value in labels.items()}
    api.have(
        POD,
        name,
        metadata={"labels": all_labels, "uid": f"uid-{name}"},
        status={"containerStatuses": statuses},
    )
    for one in containers or (component,):
        api.logs[name, one, False] = [f"2026-11-30T12:00:00Z {name}/{one}\n".encode()]


def a_cluster() -> FakeSupport:
    api = FakeSupport()
    reference = {"controllerRef": {"name": "gantry"}}
    api.have(BROKER_GROUP, "orders", spec=reference)
    api.have(BROKER_GROUP, "others", spec=reference)
    api.have(CONTROLLER_GROUP, "gantry", status={"leader": {"pod": "gantry-controller-1"}})
    api.have(FRONT_GROUP, "clients", spec=reference)
    api.have(FRONT_GROUP, "foreign", spec={"controllerRef": {"name": "other"}})
    pod(api, "orders-broker-0", "broker", "orders", "broker", "door", "sidecar", role="replica")
    pod(api, "orders-broker-1", "broker", "orders", role="master")
    pod(api, "others-broker-0", "broker", "others", role="master")
    pod(api, "gantry-controller-0", "controller", "gantry")
    pod(api, "gantry-controller-1", "controller", "gantry")
    pod(api, "clients-front-x", "front", "clients")
    pod(api, "foreign-front-x", "front", "foreign")
    return api


async def named(group: str, **facts: Any) -> list[str]:
    found = await sources(a_cluster(), "mq", LogsWanted(group, **facts))
    prefixes = Prefixes([])
    return [prefixes.before(one).removesuffix(" | ") for one in found]


async def test_who_said_it_and_who_leads() -> None:
    assert await named("orders") == [
        " orders-broker-0 replica",
        " orders-broker-0/door replica",
        "*orders-broker-1 master",
    ]
    assert " orders-broker-0/sidecar replica" in await named("orders", containers=True)
    assert await named("cg/gantry") == [
        " gantry-controller-0 follower",
        "*gantry-controller-1 leader",
    ]
    assert await named("FrontGroup/clients") == [" clients-front-x front"]


async def test_all_of_a_group_is_its_quorum_and_fronts_and_of_a_quorum_its_groups() -> None:
    found = await named("orders", all_of_it=True)
    assert [one.split()[0] for one in found] == [
        "clients-front-x",
        "gantry-controller-0",
        "*gantry-controller-1",
        "orders-broker-0",
        "orders-broker-0/door",
        "*orders-broker-1",
    ]
    assert "*others-broker-0 master" in await named("gantry", all_of_it=True)
    assert not any("foreign" in one for one in await named("gantry", all_of_it=True))


async def test_lines_of_all_pods_are_in_the_order_of_time() -> None:
    api = a_cluster()
    api.logs["orders-broker-0", "broker", False] = [
        b"2026-11-30T12:00:01Z a\n2026-11-30T",
        b"12:00:03Z c\n",
    ]
    api.logs["orders-broker-1", "broker", False] = [b"2026-11-30T12:00:02Z b\nmore\n"]
    del api.logs["orders-broker-0", "door", False]
    shown: list[str] = []
    told: list[str] = []
    await show(api, "mq", LogsWanted("orders", since_s=600), shown.append, told.append)
    assert shown == [
        " orders-broker-0      replica | 2026-11-30T12:00:01Z a",
        "*orders-broker-1      master  | 2026-11-30T12:00:02Z b",
        "*orders-broker-1      master  | more",
        " orders-broker-0      replica | 2026-11-30T12:00:03Z c",
    ]
    assert told == ["orders-broker-0/door: 404 NotFound: mq/orders-broker-0"]
    assert api.asked[0][1] == {
        "container": "broker",
        "timestamps": "true",
        "sinceSeconds": "600",
    }


async def test_the_last_lines_are_asked_for_and_runs_before_a_restart() -> None:
    api = a_cluster()
    (one, *_) = api.objects["Pod"]
    one["status"]["containerStatuses"][0] |= {"lastState": {"terminated": {"exitCode": 1}}}
    api.logs["orders-broker-0", "broker", True] = [b"the end\n"]
    shown: list[str] = []
    wanted = LogsWanted("orders", previous=True, tail=7)
    await show(api, "mq", wanted, shown.append, shown.append)
    assert shown == [" orders-broker-0 replica | the end"]
    assert api.asked == [
        (
            "orders-broker-0",
            {"container": "broker", "timestamps": "true", "tailLines": "7", "previous": "true"},
        )
    ]
    with pytest.raises(GantryError, match="No container of gantry in namespace mq has restarted"):
        await show(api, "mq", LogsWanted("gantry", previous=True), shown.append, shown.append)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("nothing", "There is no group nothing in namespace mq"),
        ("bg/gantry", "There is no BrokerGroup gantry in namespace mq"),
        ("pod/orders", "pod is no kind of group"),
        ("twice", "twice is the name of a BrokerGroup and FrontGroup: give bg/twice"),
    ],
)
async def test_who_is_not_meant_is_one_sentence(given: str, sentence: str) -> None:
    api = a_cluster()
    api.have(BROKER_GROUP, "twice")
    api.have(FRONT_GROUP, "twice")
    with pytest.raises(GantryError, match=sentence):
        await find(api, "mq", given)


async def test_what_may_not_be_read_is_one_sentence() -> None:
    for denied in ("pods", "brokergroups"):
        api = a_cluster()
        api.denied = {denied}
        with pytest.raises(GantryError, match="403 Forbidden"):
            await sources(api, "mq", LogsWanted("orders"))
    api = a_cluster()
    api.denied = {"pods/log"}
    told: list[str] = []
    wanted = LogsWanted("cg/gantry")
    assert list(await read(api, await sources(api, "mq", wanted), wanted, told.append)) == []
    assert len(told) == 2


def test_no_logs_have_no_lines() -> None:
    assert list(merged([])) == []


class Growing(FakeSupport):
    """Logs that go on until they are ended, and whose connections may be lost."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: dict[str, asyncio.Queue[bytes | Exception | None]] = {}

    async def read_log(
        self, namespace: str, pod: str, query: Mapping[str, str]
    ) -> AsyncGenerator[bytes, None]:
        self.asked.append((pod, dict(query)))
        queue = self.streams.setdefault(pod, asyncio.Queue())
        while (item := await queue.get()) is not None:
            if isinstance(item, Exception):
                raise item
            yield item


async def until(check: Any) -> None:
    async with asyncio.timeout(20):
        while not check():
            await asyncio.sleep(0.01)


async def test_logs_are_followed_also_those_of_later_pods_and_lost_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_logs, "LOOK_S", 0.05)
    monkeypatch.setattr(group_logs, "HOLD_S", 0.05)
    api = Growing()
    api.have(BROKER_GROUP, "orders")
    pod(api, "orders-broker-0", "broker", "orders", role="master")
    shown: list[str] = []
    told: list[str] = []
    following = asyncio.create_task(
        LogFollower(api, "mq", LogsWanted("orders", tail=3), told.append).run(shown.append)
    )
    await until(lambda: "orders-broker-0" in api.streams)
    first = api.streams["orders-broker-0"]
    first.put_nowait(b"2026-11-30T12:00:01Z a\n2026-11-30T12:00:02Z b\n2026-")
    await until(lambda: len(shown) == 2)
    first.put_nowait(Unavailable(0, "NoConnection", "cut"))
    await until(lambda: len(api.asked) == 2)
    assert [query.get("sinceTime") for _, query in api.asked] == [None, "2026-11-30T12:00:02Z"]
    assert api.asked[0][1]["tailLines"] == "3"
    first.put_nowait(b"2026-11-30T12:00:02Z b\n2026-11-30T12:00:03Z c\n")
    await until(lambda: len(shown) == 3)
    pod(api, "orders-broker-1", "broker", "orders", role="replica")
    api.objects["Pod"][0]["metadata"]["labels"]["mq.gantry.dev/role"] = "replica"
    await until(lambda: "orders-broker-1" in api.streams)
    api.streams["orders-broker-1"].put_nowait(b"2026-11-30T12:00:05Z e\n")
    first.put_nowait(b"2026-11-30T12:00:04Z d\n")
    await until(lambda: len(shown) == 5)
    assert [line.rpartition(" ")[2] for line in shown] == ["a", "b", "c", "d", "e"]
    assert [line[0] for line in shown] == ["*", "*", "*", " ", " "], "its role when it said it"
    first.put_nowait(None)
    await until(first.empty)
    await asyncio.sleep(0.2)
    assert len(api.asked) == 3, "a log that has ended is not opened again"
    assert told == ["orders-broker-0: cut"]
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def test_too_many_logs_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_logs, "FOLLOWED_MAX", 1)
    with pytest.raises(GantryError, match="3 logs are too many to follow, 1 at most"):
        await LogFollower(a_cluster(), "mq", LogsWanted("orders"), print).run(print)


async def test_pods_that_cannot_be_listed_meanwhile_are_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(group_logs, "LOOK_S", 0.02)
    api = Growing()
    api.have(BROKER_GROUP, "orders")
    told: list[str] = []
    following = asyncio.create_task(
        LogFollower(api, "mq", LogsWanted("orders"), told.append).run(told.append)
    )
    await asyncio.sleep(0.05)
    api.denied = {"pods"}
    await until(lambda: told)
    assert "403 Forbidden" in told[0]
    assert not following.done()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
