"""The parts of `bench controller` that compute: frames, answers, percentiles, targets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from gantry_lab.bench import page
from gantry_lab.bench.controller import work as controller_work
from gantry_lab.bench.controller.beats import TICKS, Beats, share_out
from gantry_lab.bench.controller.capacity import TRIES, Search, Trials
from gantry_lab.bench.controller.restart import bound_of
from gantry_lab.bench.controller.target import parse_members
from gantry_lab.bench.controller.work import Births, Reads, Registrations, SetChanges, Widenings
from gantry_lab.bench.load import Reply
from gantry_lab.bench.page import PROFILE, SHEETS
from gantry_lab.bench.results import UNITS, Latencies, line, lines, machine, percentile
from gantry_lab.bench.suite import Bench
from gantry_lab.commands.bench import parse_address
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import ConfigError, GantryError
from gantry_protocol.frame import FrameDecoder

if TYPE_CHECKING:
    from collections.abc import Mapping


ROOT = Path(__file__).parents[3]
BENCH, BROKERS, _, _, _, QUEUES, *_ = SHEETS
EMPTY = Reply(), memoryview(b"")
name = controller_work.name


def decoded(frame: bytes | None) -> RemotingCommand:
    assert frame is not None
    (command,) = FrameDecoder().feed(frame)
    return command


def test_each_set_change_is_the_one_after_the_last_acknowledged() -> None:
    work = SetChanges(2)
    seen = [work.first(1), work.following(1, *EMPTY), work.following(1, *EMPTY), work.first(1)]
    commands = [decoded(frame) for frame in seen]
    assert [json.loads(command.body) for command in commands] == [
        {"syncStateSet": [1, 2], "syncStateSetEpoch": 1},
        {"syncStateSet": [1], "syncStateSetEpoch": 2},
        {"syncStateSet": [1, 2], "syncStateSetEpoch": 3},
        {"syncStateSet": [1, 2], "syncStateSetEpoch": 3},
    ]
    assert {command.opaque for command in commands} == {1}
    assert {(command.ext or {})["brokerName"] for command in commands} == {name(1)}


def test_a_group_is_born_in_the_order_of_brokers() -> None:
    script = Births(2, range(4), replicas=2, alive=True)
    found = []
    while (frame := script.first(1)) is not None:
        found.append(decoded(frame))
    groups = [(command.ext or {})["brokerName"] for command in found]
    assert groups == [name(1)] * 7 + [name(3)] * 7
    assert [command.code for command in found[:7]] == [1013, 1013, 1003, 1003, 1002, 904, 904]
    assert {command.opaque for command in found} == {1}
    assert not any(command.is_oneway for command in found)


def test_only_the_wanted_brokers_register_and_nobody_beats_unasked() -> None:
    script = Births(1, [7], replicas=3, registered=1)
    codes = []
    while (frame := script.first(0)) is not None:
        codes.append(decoded(frame).code)
    assert codes == [1013, 1013, 1013, 1003, 1002]


def test_a_set_is_widened_once_per_group() -> None:
    work = Widenings(2, range(4))
    frames = [decoded(work.first(1)), decoded(work.first(1))]
    assert work.first(1) is None
    assert [(one.ext or {})["brokerName"] for one in frames] == [name(1), name(3)]
    assert [json.loads(one.body)["syncStateSet"] for one in frames] == [[1, 2, 3]] * 2


def test_registrations_go_round_all_groups_and_each_is_another() -> None:
    work = Registrations(2, 5)
    seen = [decoded(work.first(1)) for _ in range(5)]
    assert {(one.ext or {})["brokerName"] for one in seen} == {name(n) for n in range(5)}
    assert len({(one.ext or {})["brokerAddress"] for one in seen}) == 5
    assert {(one.code, one.opaque, (one.ext or {})["brokerId"]) for one in seen} == {(1003, 1, "2")}


@pytest.mark.parametrize("connections", [16, 1000], ids=["few", "many"])
def test_a_heartbeat_has_its_phase_whatever_it_shares_a_connection_with(connections: int) -> None:
    frames = [b"%04d" % number for number in range(6000)]
    phases = [number * 7919 % TICKS for number in range(6000)]
    slices = share_out(frames, phases, connections)
    seen = {
        data[at : at + 4]: (tick, connection)
        for tick, slice_ in enumerate(slices)
        for connection, data in slice_
        for at in range(0, len(data), 4)
    }
    assert [seen[frame][0] for frame in frames] == phases
    assert {connection for _, connection in seen.values()} == set(range(connections))
    assert sum(len(data) for slice_ in slices for _, data in slice_) == 4 * 6000


async def test_replicas_beat_all_through_the_second_as_real_brokers_do() -> None:
    """In step, or all within a tenth, they would be a burst that no controller ever sees."""
    beats = Beats(0, replicas=3, connections=1000)
    await beats.speak_for(3334)
    sizes = [sum(len(data) for _, data in slice_) for slice_ in beats.rounds[1000]]
    tenths = [sum(sizes[at : at + TICKS // 10]) for at in range(0, TICKS, TICKS // 10)]
    assert max(tenths) < 1.2 * sum(tenths) / 10
    assert min(tenths) > 0.8 * sum(tenths) / 10


async def test_a_replica_keeps_its_phase_when_more_come_and_when_they_fall_silent() -> None:
    beats = Beats(0, replicas=3, connections=16)
    await beats.speak_for(20)
    before = beats.rounds
    await beats.speak_for(100)
    assert sum(len(data) for slice_ in beats.rounds[16] for _, data in slice_) == 5 * sum(
        len(data) for slice_ in before[16] for _, data in slice_
    )
    await beats.speak_for(20)
    assert beats.rounds == before


@pytest.mark.parametrize("carried", [0, 1, 5, 255, 256, 300, 5000, 20_000, 32_768])
def test_the_search_finds_how_many_are_carried(carried: int) -> None:
    search = Search()
    tried = []
    while (number := search.next()) is not None:
        tried.append(number)
        search.note(number, carried=number <= carried)
    assert len(set(tried)) == len(tried) <= 14
    assert search.best <= carried
    assert search.best == carried if carried in (0, 1) else search.best >= carried * 0.8


class Quorums:
    """What would be tried: quick up to `carried` groups; `slow` spoils so many tries."""

    def __init__(self, carried: int, *, slow: Mapping[int, int] | None = None, time: int = 99):
        self.carried = carried
        self.slow = dict(slow or {})
        self.time = time
        self.tried: list[int] = []

    async def attempt(self, groups: int) -> float:
        self.tried.append(groups)
        if self.slow.get(groups, 0):
            self.slow[groups] -= 1
            return 500.0
        if groups > self.carried:
            raise GantryError("A controller is more than a second behind with the heartbeats.")
        return 10.0 + groups / 1000

    async def search(self) -> dict[str, float]:
        late = lambda: len(self.tried) >= self.time  # noqa: E731
        return await Trials(self.attempt, late=late, say=lambda _: None).search()


async def test_the_capacity_is_a_number_that_was_tried() -> None:
    quorums = Quorums(1000)
    found = await quorums.search()
    assert found["groups"] in quorums.tried
    assert 880 <= found["groups"] <= 1000
    assert found["p99_ms"] == 10.0 + found["groups"] / 1000
    assert found["time_limit_reached"] == 0.0


async def test_a_number_is_not_too_much_while_writes_are_slow_by_themselves() -> None:
    calm = await Quorums(1000).search()
    neighbour = Quorums(1000, slow={512: TRIES})

    async def attempt(groups: int) -> float:
        if groups == 512 and neighbour.slow[512] == 1:
            neighbour.slow[0] = TRIES  # whoever delays writes goes on for a while
        return await Quorums.attempt(neighbour, groups)

    found = await Trials(attempt, late=lambda: False, say=lambda _: None).search()
    assert found == calm


async def test_where_writes_are_slow_without_heartbeats_nothing_is_measured() -> None:
    with pytest.raises(GantryError, match="Nothing was measured: with 0 groups the p99"):
        await Quorums(1000, slow={0: 99}, time=9).search()


async def test_not_even_one_group_is_a_figure() -> None:
    assert await Quorums(0).search() == {"groups": 0.0, "time_limit_reached": 0.0}


@pytest.mark.parametrize("time", range(2, 20))
async def test_the_search_ends_in_time(time: int) -> None:
    quorums = Quorums(1000, time=time)
    found = await quorums.search()
    assert len(quorums.tried) <= time
    assert found["groups"] in quorums.tried


async def test_no_time_to_find_any_is_said() -> None:
    with pytest.raises(GantryError, match="No number of groups that is carried was found"):
        await Quorums(0, time=4).search()


def test_readers_share_the_groups() -> None:
    work = Reads(4, 3)
    names = [(decoded(work.first(slot)).ext or {})["brokerName"] for slot in range(4)]
    assert names == [name(0), name(1), name(2), name(0)]


def test_a_percentile_is_a_value_that_was_seen() -> None:
    values = Latencies([float(number) for number in range(1, 1001)])
    assert percentile(values, 0.5) == 500.0
    assert percentile(values, 0.99) == 990.0
    assert percentile(values, 1.0) == 1000.0


def test_a_percentile_of_a_few_is_none() -> None:
    with pytest.raises(GantryError, match="Only 99 operations"):
        percentile(Latencies([1.0] * 99), 0.99)


def test_lines_keep_the_decimals_that_a_metric_needs() -> None:
    runs = [{"ratio": 0.514, "ops_per_s": 1234.5}, {"ratio": 0.526, "ops_per_s": 999.9}]
    found = {one.metric: one for one in lines("case", runs, bench="b")}
    assert (found["ratio"].min, found["ratio"].median, found["ratio"].max) == (0.51, 0.52, 0.53)
    assert (found["ops_per_s"].max, found["ops_per_s"].runs) == (1234.0, 2)
    assert {(one.bench, one.case) for one in found.values()} == {("b", "case")}


@pytest.mark.parametrize(
    ("peers", "expected"),
    [
        ("n0:127.0.0.1:9878;n1:127.0.0.1:9868;", ("127.0.0.1:9878", "127.0.0.1:9868")),
        ("127.0.0.1:9770;127.0.0.1:9771;", ("127.0.0.1:9770", "127.0.0.1:9771")),
        ("", ()),
    ],
    ids=["dledger", "jraft", "none"],
)
def test_members_are_read_as_each_make_writes_them(peers: str, expected: tuple[str, ...]) -> None:
    assert parse_members({"peers": peers}).all == expected


def test_a_histogram_gives_the_bound_that_a_share_is_within() -> None:
    buckets = {"0.001": 98.0, "0.005": 99.0, "0.05": 99.0, "+Inf": 100.0}
    assert bound_of(buckets, 0.99) == 0.005
    with pytest.raises(GantryError, match="no bound"):
        bound_of(buckets, 0.999)
    with pytest.raises(GantryError, match="no bound"):
        bound_of({}, 0.99)


def test_leader_may_be_unknown() -> None:
    assert parse_members({"controllerLeaderAddress": ""}).leader is None
    assert parse_members({"controllerLeaderAddress": "h:1"}).leader == "h:1"


def test_target_needs_a_port() -> None:
    assert parse_address("localhost:9878") == "localhost:9878"
    with pytest.raises(ConfigError, match="--against"):
        parse_address("localhost")


def figure(case: str, metric: str, *values: float, bench: str = "controller") -> bytes:
    (one,) = lines(case, [{metric: value} for value in values], bench=bench)
    return msgspec.json.encode(one)


SHEET = BENCH
MACHINE = msgspec.json.encode({"bench": "controller", "machine": machine()})
PAGE = f"before\n{SHEET.begin}\nold\n{SHEET.end}\nafter\n"


def test_the_page_shows_what_was_measured_and_what_fell_short() -> None:
    figures, machines = page.read(
        [
            figure("write-64x1", "ops_per_s", 19_000, 21_000, 22_000),
            figure("write-64x16", "ops_per_s", 50_000.0),
            figure("leader-kill", "gap_ms", 100, 120, 1100),
            figure("write-64x1", "ops_per_s", 117.0, bench="java-dledger"),
            MACHINE,
        ]
    )
    text = page.replaced(PAGE, SHEET, figures, machines)
    assert text.startswith(f"before\n{SHEET.begin}\n| ")
    assert text.endswith(f"\n{SHEET.end}\nafter\n")
    assert "old" not in text
    rows = page.table(SHEET, figures)
    assert rows[0][-1] == "java-dledger"
    assert [row[1:] for row in rows[2:]] == [
        ["≥ 20,000", "21,000 (19,000 … 22,000)", "yes", "117"],
        ["≥ 60,000", "50,000", "**no**", ""],
        ["≤ 400, max ≤ 1,000", "120 (100 … 1,100)", "**no**", ""],
    ]


def test_the_page_says_how_many_times_as_many_groups_there_are() -> None:
    measured = [figure("groups-capacity", "groups", 16_000.0)]
    figures, _ = page.read(measured)
    assert len(page.table(SHEET, figures)) == 3  # nothing to compare with
    measured += [
        figure("groups-capacity", "groups", 2_000.0, bench="java-dledger"),
        figure("groups-capacity", "groups", 0.0, bench="java-jraft"),
    ]
    figures, _ = page.read(measured)
    ratio = page.table(SHEET, figures)[-1]
    assert ratio == ["… times theirs", "≥ 10", "", "**no**", "8.0", "theirs is 0"]


def test_each_other_benchmark_may_have_to_be_exceeded_by_more() -> None:
    measured = [
        figure("send-64-3r", "messages_per_s", 12_000.0, bench="broker"),
        figure("send-64-3r", "messages_per_s", 10_000.0, bench="java-default"),
        figure("send-64-3r", "messages_per_s", 2_400.0, bench="java-all-in-sync"),
    ]
    for slow, verdict in ((2_400.0, "yes"), (4_000.0, "**no**")):
        measured[2] = figure("send-64-3r", "messages_per_s", slow, bench="java-all-in-sync")
        figures, _ = page.read(measured)
        ratio = page.table(BROKERS, figures)[-1]
        assert ratio == ["… times theirs", "≥ 1, ≥ 4", "", verdict, "1.2", f"{12_000 / slow:.1f}"]


def test_what_has_no_goal_is_shown_without_columns_for_one() -> None:
    lines = [line("queues", "store", "open_s", "s", [3.0]), line("queues", "store", "x", "s", [1])]
    figures, _ = page.read(map(msgspec.json.encode, lines))
    assert page.table(QUEUES, figures)[2:] == [["opening it again, s", "3"]]


def test_a_profile_has_a_column_for_each_case_and_its_largest_part_first() -> None:
    shares = {("a", "log"): 10.0, ("a", "answers"): 30.0, ("b", "links"): 40.0, ("b", "log"): 5.0}
    lines = [line("profile", case, part, "%", [share]) for (case, part), share in shares.items()]
    figures, _ = page.read(map(msgspec.json.encode, lines))
    assert page.matrix(PROFILE, figures) == [
        ["", "`a`", "`b`"],
        ["---", "---", "---"],
        ["links", "", "40"],
        ["answers", "30", ""],
        ["log", "10", "5"],
    ]


@pytest.mark.parametrize("sheet", [*SHEETS, PROFILE], ids=lambda sheet: sheet.name)
def test_the_page_has_a_place_for_every_sheet(sheet: Bench) -> None:
    text = (ROOT / "docs" / "performance.md").read_text("utf-8")
    assert text.count(sheet.begin) == text.count(sheet.end) == 1
    assert text.index(sheet.begin) < text.index(sheet.end)


def test_a_page_is_not_made_of_nothing() -> None:
    with pytest.raises(GantryError, match="no figures of the benchmark"):
        page.replaced(PAGE, SHEET, {}, {})
    figures, machines = page.read([MACHINE])
    with pytest.raises(GantryError, match="lacks"):
        page.replaced("no markers", SHEET, figures, machines)
    with pytest.raises(GantryError, match="no line of a benchmark"):
        page.read([b'{"bench": "controller"}'])


def test_every_goal_is_a_figure_that_a_case_may_have() -> None:
    assert all(case.goals for case in BENCH.case)
    assert {goal.metric for case in BENCH.case for goal in case.goals} <= set(UNITS)
