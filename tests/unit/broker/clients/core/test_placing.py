"""The division of consumers among the members that serve a queue."""

from __future__ import annotations

from collections import Counter

import pytest
from gantry_broker.clients.core.placing import (
    CONSUMERS_MAX,
    FORGET_S,
    MEASURE_S,
    Consumer,
    Placing,
    able_members,
)


class Readers:
    """Consumers of one queue, of which each reads so many messages of 1000 bytes in a second."""

    def __init__(self, rates: list[float]) -> None:
        self.placing = Placing()
        self.rates = rates
        self.sways = [1.0] * len(rates)
        self._offsets = [0.0] * len(rates)
        self.now_s = 1000.0
        self.able = [0, 2, 3]
        self.moves = 0
        self.at: dict[int, int] = {}

    def come_by(self) -> Counter[int]:
        """Each of them, a moment later; how many sit where."""
        self.now_s += 10 * MEASURE_S
        for number, rate in enumerate(self.rates):
            consumer = Consumer(f"c{number}", "g", "orders", 0)
            self._offsets[number] += rate * self.sways[number] * 1000
            offset = int(self._offsets[number])
            member = self.placing.place(consumer, offset, 1000.0, self.able, self.now_s)
            self.moves += member != self.at.get(number, member)
            self.at[number] = member
        return Counter(self.at.values())

    def load(self, member: int) -> float:
        return sum(self.rates[number] for number, at in self.at.items() if at == member)


def test_thirty_consumers_are_divided_among_three_members() -> None:
    readers = Readers([1.0] * 30)
    assert readers.come_by() == {0: 10, 2: 10, 3: 10}
    for _ in range(20):
        assert readers.come_by() == {0: 10, 2: 10, 3: 10}
    assert readers.moves == 0


def test_of_equal_members_the_master_is_the_last() -> None:
    readers = Readers([1.0, 1.0])
    assert readers.come_by() == {2: 1, 3: 1}


def test_a_consumer_that_reads_more_counts_for_more() -> None:
    readers = Readers([100.0, 100.0] + [1.0] * 50)
    for _ in range(5):
        readers.come_by()
    assert readers.at[0] != readers.at[1]
    assert max(readers.load(member) for member in readers.able) <= 101.0


def test_nobody_goes_back_and_forth() -> None:
    """Though none of them reads the same from one look to the next."""
    readers = Readers([float(number % 7 + 1) for number in range(30)])
    for _ in range(10):
        readers.come_by()
    readers.moves = 0
    for look in range(50):
        readers.sways = [1 + 0.2 * (-1) ** (look + number) for number in range(30)]
        readers.come_by()
    assert readers.moves == 0


def test_who_sat_at_a_member_that_is_gone_is_divided_among_the_others() -> None:
    readers = Readers([1.0] * 30)
    readers.come_by()
    readers.able = [0, 2]
    assert readers.come_by() == {0: 15, 2: 15}
    readers.able = [0, 2, 3]
    assert readers.come_by()[3] >= 8
    assert max(readers.come_by().values()) <= 11


def test_who_comes_by_often_is_looked_at_once_in_a_while() -> None:
    placing, consumer = Placing(), Consumer("c", "g", "orders", 0)
    assert placing.place(consumer, 0, None, [0, 2], 100.0) == 2
    for number in range(100):
        assert placing.place(consumer, number, 1e9, [0, 2, 3], 100.0 + MEASURE_S / 2) == 2
    assert placing.at(2) == 1


def test_a_member_that_may_not_serve_is_left_at_once() -> None:
    placing, consumer = Placing(), Consumer("c", "g", "orders", 0)
    assert placing.place(consumer, 0, None, [0, 2], 100.0) == 2
    assert placing.place(consumer, 0, None, [0], 100.0) == 0
    assert (placing.at(2), placing.at(0)) == (0, 1)


def test_who_does_not_come_by_any_more_is_forgotten() -> None:
    placing = Placing()
    for number in range(10):
        placing.place(Consumer(f"c{number}", "g", "orders", 0), 0, None, [0, 2], 100.0)
    placing.place(Consumer("late", "g", "orders", 0), 0, None, [0, 2], 101.0 + FORGET_S)
    assert placing.at(0) + placing.at(2) == 1


def test_consumers_beyond_the_bound_stay_at_the_master() -> None:
    placing = Placing()
    for number in range(CONSUMERS_MAX):
        placing.place(Consumer(f"c{number}", "g", "orders", 0), 0, None, [0, 2], 100.0)
    assert placing.place(Consumer("more", "g", "orders", 0), 0, None, [0, 2], 100.0) == 0
    assert placing.at(0) + placing.at(2) == CONSUMERS_MAX


@pytest.mark.parametrize(
    ("readers", "count"),
    [(0, 1), (1, 1), (2, 2), (3, 3), (9, 5)],
)
def test_so_many_members_serve_as_are_asked_for(readers: int, count: int) -> None:
    able = able_members(readers, (2, 3, 4, 5), "orders", 0)
    assert able[0] == 0
    assert len(able) == len(set(able)) == count


def test_queues_have_different_replicas_and_a_lost_one_moves_no_other() -> None:
    replicas = (2, 3, 4, 5)
    chosen = {queue: able_members(2, replicas, "orders", queue)[1] for queue in range(64)}
    assert set(chosen.values()) == set(replicas)
    for queue, member in chosen.items():
        rest = tuple(item for item in replicas if item != (member % 4) + 2)
        assert able_members(2, rest, "orders", queue)[1] == member
