"""Queue maps: made, spread, changed, and sealed by masters."""

from __future__ import annotations

import pytest
from gantry_controller.metadata.events import (
    ApplyBrokerId,
    CreateTopic,
    DeclareGroup,
    DeleteTopic,
    ElectMaster,
    Event,
    LiveMember,
    MapQueues,
    RegisterBroker,
    RetireGroup,
    SealQueues,
)
from gantry_controller.metadata.placement import even_out, place
from gantry_controller.metadata.results import Result
from gantry_controller.metadata.topic_table import Topic
from gantry_protocol.codes import ResponseCode
from gantry_protocol.queue_map import (
    MAPPED,
    MAPPED_QUEUES_MAX,
    SEGMENTS_MAX,
    MappedQueue,
    QueueMap,
    Segment,
    number_of,
)
from gantry_protocol.types import BrokerId, Epoch, Index
from hypothesis import given
from hypothesis import strategies as st
from support.metadata_world import World

CLUSTER = "c"
NAMES = ("a", "b", "d")


class Mapped:
    """Three groups with a master each."""

    def __init__(self, *names: str) -> None:
        self.world = World()
        for name in names or NAMES:
            self.add(name)

    @property
    def state(self):
        return self.world.state

    def apply(self, event: Event) -> Result:
        return self.world.apply(event)

    def add(self, name: str) -> None:
        """A group whose only member is its master."""
        of = {"cluster": CLUSTER, "name": name}
        self.apply(DeclareGroup(**of, uid=name, replicas=1, min_in_sync_replicas=1))
        self.apply(ApplyBrokerId(**of, broker_id=BrokerId(1), check_code=name))
        self.apply(
            RegisterBroker(**of, broker_id=BrokerId(1), address=f"{name}:1", incarnation=name)
        )
        live = (LiveMember(broker_id=BrokerId(1), incarnation=name),)
        assert self.apply(ElectMaster(**of, live=live, first_wait_over=True)).ok

    def map(self, queues: int, topic: str = "t", **fields: object) -> Result:
        return self.apply(MapQueues(cluster=CLUSTER, topic=topic, queues=queues, **fields))

    def seal(self, group: str, topic: str = "t", **fields: object) -> Result:
        known = self.state.groups[CLUSTER, group]
        evidence = {
            "broker_id": BrokerId(1),
            "master_epoch": known.master_epoch,
            "incarnation": known.master_incarnation,
            **fields,
        }
        return self.apply(SealQueues(cluster=CLUSTER, name=group, topic=topic, **evidence))

    def epoch(self, topic: str = "t") -> int:
        found = self.state.queue_map(CLUSTER, topic)
        assert found is not None
        return found.epoch

    def queues(self, topic: str = "t") -> tuple[MappedQueue, ...]:
        found = self.state.queue_map(CLUSTER, topic)
        assert found is not None
        return found.queues


def test_new_queues_go_to_groups_evenly_and_each_has_the_topic() -> None:
    mapped = Mapped()
    assert mapped.map(9).changed
    assert sorted(mapped.state.maps_of(CLUSTER).load.values()) == [3, 3, 3]
    for name in NAMES:
        topic = mapped.state.topic_table((CLUSTER, name)).topics["t"]
        assert (topic.read_queue_nums, topic.write_queue_nums) == (9, 9)
        assert topic.attributes == {MAPPED: "true"}
    # The next topic goes to where the fewest queues are.
    mapped.map(1, "u", places=((0, "b"),))
    mapped.map(2, "v")
    assert {queue.open.group for queue in mapped.queues("v")} == {"a", "d"}


def test_a_wish_is_followed_and_more_queues_are_added_behind() -> None:
    mapped = Mapped()
    mapped.map(
        2,
        places=(
            (0, "d"),
            (1, "d"),
        ),
        epoch=77,
    )
    assert [queue.open.group for queue in mapped.queues()] == ["d", "d"]
    assert mapped.state.queue_map(CLUSTER, "t").epoch == 77
    assert mapped.map(4).changed
    assert [queue.open.group for queue in mapped.queues()][:2] == ["d", "d"]
    assert {queue.open.group for queue in mapped.queues()[2:]} == {"a", "b"}
    assert mapped.state.queue_map(CLUSTER, "t").epoch == 78
    assert mapped.state.topic_table((CLUSTER, "d")).topics["t"].write_queue_nums == 4
    before = mapped.state.queue_map(CLUSTER, "t")
    assert not mapped.map(4).changed
    assert mapped.state.queue_map(CLUSTER, "t") is before


def test_a_queue_moves_when_its_master_has_said_where_it_ends() -> None:
    mapped = Mapped()
    mapped.map(1, places=((0, "a"),))
    mapped.map(1, places=((0, "b"),))
    (queue,) = mapped.queues()
    assert (queue.open.group, queue.target, queue.goal) == ("a", "b", "b")
    assert mapped.seal("a", ends=((0, 40),)).changed
    (queue,) = mapped.queues()
    assert queue == MappedQueue((Segment("a", 0, 0), Segment("b", 40, MAPPED_QUEUES_MAX)), "", 1)
    assert number_of(queue.open.queue_id) == 0
    assert [queue.holder(offset).group for offset in (0, 39, 40, 99)] == ["a", "a", "b", "b"]
    assert not mapped.seal("a", ends=((0, 44),)).changed, "a report that comes again"
    assert mapped.queues() == (queue,)


def test_a_queue_that_comes_back_has_another_queue_there() -> None:
    """Else its offsets would have a gap, and committed ones would be of an earlier stay."""
    mapped = Mapped()
    mapped.map(1, places=((0, "a"),))
    for target, source, end in (("b", "a", 5), ("a", "b", 9), ("b", "a", 9), ("a", "b", 9)):
        mapped.map(1, places=((0, target),))
        assert mapped.seal(source, ends=((0, end),)).changed
    (queue,) = mapped.queues()
    ids = [segment.queue_id for segment in queue.segments]
    assert [segment.group for segment in queue.segments] == ["a", "b", "a", "b", "a"]
    assert ids == [number * MAPPED_QUEUES_MAX for number in range(5)]
    assert [segment.start for segment in queue.used] == [0, 5, 9], "some never had a message"
    assert queue.holder(9) == queue.open


def test_who_may_say_where_a_queue_ends() -> None:
    mapped = Mapped()
    mapped.map(
        2,
        places=(
            (0, "a"),
            (1, "b"),
        ),
    )
    mapped.map(2, places=((0, "b"),))
    before = mapped.state.queue_map(CLUSTER, "t")
    for fields, code in (
        ({"master_epoch": Epoch(0)}, ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH),
        ({"broker_id": BrokerId(2)}, ResponseCode.CONTROLLER_INVALID_MASTER),
        ({"incarnation": "another"}, ResponseCode.CONTROLLER_INVALID_MASTER),
        ({"topic": "unknown"}, ResponseCode.INVALID_PARAMETER),
        ({"ends": ((2, 1),)}, ResponseCode.INVALID_PARAMETER),
    ):
        assert mapped.seal("a", **{"ends": ((0, 4),), **fields}).code == code, fields
    assert not mapped.seal("b", ends=((0, 4),)).changed, "not its queue"
    assert not mapped.seal("b", ends=((1, 4),)).changed, "does not move"
    assert mapped.state.queue_map(CLUSTER, "t") is before
    mapped.seal("a", ends=((0, 4),))
    mapped.map(2, places=((0, "d"),))
    assert mapped.seal("b", ends=((0, 3),)).code == ResponseCode.INVALID_PARAMETER, (
        "before it begins"
    )


def test_a_move_can_be_taken_back_until_then() -> None:
    mapped = Mapped()
    mapped.map(1, places=((0, "a"),))
    mapped.map(1, places=((0, "b"),))
    assert mapped.map(1, places=((0, "a"),)).changed
    assert mapped.queues()[0].target == ""
    assert not mapped.seal("a", ends=((0, 7),)).changed


def test_an_end_of_a_move_that_was_taken_back_does_not_end_the_next_one() -> None:
    """Meanwhile its master has taken messages behind that end."""
    mapped = Mapped()
    mapped.map(1, places=((0, "a"),))
    mapped.map(1, places=((0, "b"),))
    then = mapped.epoch()
    mapped.map(1, places=((0, "a"),))
    mapped.map(1, places=((0, "b"),))
    late = mapped.seal("a", ends=((0, 7),), map_epoch=then)
    assert not late.ok
    assert "look again" in late.remark
    assert mapped.queues()[0].open == Segment("a", 0, 0)
    assert mapped.seal("a", ends=((0, 9),), map_epoch=mapped.epoch()).changed
    assert mapped.queues()[0].open.start == 9


def test_a_target_that_is_gone_gets_nothing() -> None:
    mapped = Mapped()
    mapped.map(1, places=((0, "a"),))
    mapped.map(1, places=((0, "b"),))
    owner = mapped.state.groups[CLUSTER, "b"].declaration
    mapped.apply(RetireGroup(cluster=CLUSTER, name="b", uid=owner.uid))
    assert mapped.seal("a", ends=((0, 7),)).changed
    assert mapped.queues() == (MappedQueue((Segment("a", 0, 0),)),)


@pytest.mark.parametrize(
    ("event", "says"),
    [
        ({"queues": 0}, "1 to 4096 queues, not 0"),
        ({"queues": 4097}, "1 to 4096 queues, not 4097"),
        ({"queues": 1}, "cannot have fewer"),
        ({"queues": 2, "places": ((2, "a"),)}, "there is no queue 2"),
        ({"queues": 2, "places": ((0, "gone"),)}, "cannot go to gone"),
        ({"queues": 2, "topic": "plain"}, "without a queue map"),
        ({"queues": 2, "cluster": "else"}, "no broker group that serves in cluster else"),
        ({"queues": 2, "topic": "no topic"}, "illegal characters"),
    ],
)
def test_what_is_refused_changes_nothing(event: dict[str, object], says: str) -> None:
    mapped = Mapped()
    mapped.apply(CreateTopic(cluster=CLUSTER, name="a", topic="plain", config=Topic(1, 1, 6)))
    mapped.map(2)
    digest = mapped.state.digest()
    result = mapped.apply(MapQueues(**{"cluster": CLUSTER, "topic": "t", **event}))
    assert result.code == ResponseCode.INVALID_PARAMETER
    assert says in (result.remark or "")
    assert mapped.state.digest() == digest


def test_segments_are_bounded() -> None:
    mapped = Mapped("a", "b")
    mapped.map(1, places=((0, "a"),))
    for move in range(SEGMENTS_MAX - 1):
        groups = ("a", "b") if move % 2 == 0 else ("b", "a")
        mapped.map(1, places=((0, groups[1]),))
        assert mapped.seal(groups[0], ends=((0, move + 1),)).changed
    here = mapped.queues()[0].open.group
    other = "a" if here == "b" else "b"
    assert "the most it may have" in (mapped.map(1, places=((0, other),)).remark or "")
    assert mapped.map(1, places=((0, here),)).ok


def test_a_segment_that_never_had_a_message_gives_way() -> None:
    """It is kept for offsets that were committed there, as long as there is room."""
    mapped = Mapped("a", "b")
    mapped.map(1, places=((0, "a"),))
    ends = (0, 7, 7, *[7] * SEGMENTS_MAX)
    for move, end in enumerate(ends):
        groups = ("a", "b") if move % 2 == 0 else ("b", "a")
        assert mapped.map(1, places=((0, groups[1]),)).ok
        assert mapped.seal(groups[0], ends=((0, end),)).changed
    (queue,) = mapped.queues()
    assert len(queue.segments) == SEGMENTS_MAX
    assert queue.moves == len(ends)
    assert queue.segments[0] == Segment("b", 0, MAPPED_QUEUES_MAX), "the only one with messages"
    assert [number_of(segment.queue_id) for segment in queue.used] == [0, 0]


def test_a_mapped_topic_is_deleted_everywhere_with_its_map() -> None:
    mapped = Mapped()
    mapped.map(3)
    mapped.apply(DeleteTopic(cluster=CLUSTER, name="a", topic="t"))
    assert mapped.state.queue_map(CLUSTER, "t") is None
    assert mapped.state.groups_with("t") == []
    assert mapped.state.ended_maps(CLUSTER).index == mapped.state.index
    assert mapped.state.maps_of(CLUSTER).load == {}


def test_a_topic_that_is_made_again_has_no_queue_id_of_the_former_one() -> None:
    """A group's own queue of the former one goes on where it ended, not where a segment begins."""
    mapped = Mapped("a", "b")
    used: set[int] = set()
    for end in (9, 40, 5):
        mapped.map(1, places=((0, "a"),))
        for source, target in (("a", "b"), ("b", "a")):
            mapped.map(1, places=((0, target),))
            assert mapped.seal(source, ends=((0, end),)).changed
            queue_id = mapped.queues()[0].open.queue_id
            assert queue_id not in used
            used.add(queue_id)
        mapped.apply(DeleteTopic(cluster=CLUSTER, name="", topic="t"))


def test_a_mapped_topic_is_not_changed_group_by_group() -> None:
    mapped = Mapped()
    mapped.map(3)
    event = CreateTopic(cluster=CLUSTER, name="a", topic="t", config=Topic(8, 8, 6))
    result = mapped.apply(event)
    assert result.code == ResponseCode.INVALID_PARAMETER
    assert "has a queue map" in (result.remark or "")


# --- placement -------------------------------------------------------------------------------


def a_map(places: list[str]) -> QueueMap:
    queues = tuple(MappedQueue((Segment(group, 0, number),)) for number, group in enumerate(places))
    return QueueMap(1, Index(1), queues)


groups_of = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6, unique=True)


@given(
    groups_of, st.integers(0, 60), st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9))
)
def test_places_level_out(groups: list[str], count: int, load: dict[str, int]) -> None:
    places = place("t", range(count), groups, load)
    after = {group: load.get(group, 0) for group in groups}
    for group in places.values():
        after[group] += 1
    got = set(places.values())
    assert list(places) == list(range(count))
    assert not got or max(after[group] for group in got) - min(after.values()) <= 1
    assert place("t", range(count), groups[::-1], load) == places


@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=4),
    groups_of,
)
def test_evened_out_with_the_fewest_moves(topics: list[list[str]], groups: list[str]) -> None:
    maps = {f"t{number}": a_map(places) for number, places in enumerate(topics)}
    moves = even_out(maps, groups)
    load = dict.fromkeys(groups, 0)
    for places in topics:
        for group in places:
            if group in load:
                load[group] += 1
    homeless = sum(group not in load for places in topics for group in places)
    total = sum(map(len, topics))
    low, extra = divmod(total, len(groups))
    ranked = sorted(load.values(), reverse=True)
    surplus = sum(max(have - low - (place < extra), 0) for place, have in enumerate(ranked))
    assert len(moves) == homeless + surplus
    assert len({(move.topic, move.queue) for move in moves}) == len(moves)
    for move in moves:
        assert maps[move.topic].queues[move.queue].open.group == move.group != move.target
        if move.group in load:
            load[move.group] -= 1
        load[move.target] += 1
    assert max(load.values()) - min(load.values()) <= 1
    assert even_out(maps, groups[::-1]) == moves


def test_a_new_group_gets_its_share_and_nothing_else_moves() -> None:
    topic = a_map(["a", "b", "d"] * 8)
    moves = even_out({"t": topic}, ["a", "b", "d", "e"])
    assert len(moves) == 6 == 24 // 4
    assert {move.target for move in moves} == {"e"}


def test_queues_that_move_are_left_alone() -> None:
    queue = MappedQueue((Segment("a", 0, 0),), "b")
    topic = QueueMap(1, Index(1), (queue,) * 4)
    assert even_out({"t": topic}, ["a", "b"]) == []
