"""The broker group that a queue of a mapped topic goes to.

It follows from names and from how many queues each group has, so every controller finds the same.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from hashlib import blake2b

import msgspec
from gantry_protocol.queue_map import QueueMap


class Move(msgspec.Struct, frozen=True):
    """A queue that is to go from one group to another."""

    topic: str
    queue: int
    group: str
    target: str


def weight(group: str, topic: str, queue: int) -> int:
    """The rank of ``group`` for a queue, 64 bits; the highest of all groups is its first choice."""
    text = f"{group}\0{topic}\0{queue}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def _rank(group: str, queue: tuple[str, int]) -> tuple[int, tuple[str, int]]:
    return weight(group, *queue), queue


def place(
    topic: str, queues: Iterable[int], groups: Sequence[str], load: Mapping[str, int]
) -> dict[int, str]:
    """Groups for new ``queues``: rendezvous hashing with bounded load.

    A queue goes to the group of the highest weight among those with the fewest queues.

    Args:
        topic: whose queues.
        queues: their numbers.
        groups: to choose from, at least one.
        load: how many queues groups have now.
    """
    count = {group: load.get(group, 0) for group in groups}
    places: dict[int, str] = {}
    for queue in queues:
        least = min(count.values())
        free = [group for group in groups if count[group] == least]
        places[queue] = max(free, key=lambda group: (weight(group, topic, queue), group))
        count[places[queue]] += 1
    return places


def rehouse(
    maps: Mapping[str, QueueMap],
    groups: Sequence[str],
    load: Mapping[str, int],
    left_alone: Collection[str] = (),
) -> list[Move]:
    """The moves of all queues that are at none of ``groups``, to those with the fewest.

    Args:
        maps: of one cluster, by topic.
        groups: that may have queues.
        load: how many queues groups have now.
        left_alone: other groups, whose queues stay.
    """
    count = {group: load.get(group, 0) for group in groups}
    moves: list[Move] = []
    for topic, queues in sorted(maps.items()):
        homeless = [
            (number, queue.goal)
            for number, queue in enumerate(queues.queues)
            if queue.goal not in count
            and queue.goal not in left_alone
            and not queue.is_full  # one would hold up all others
        ]
        if not homeless or not count:
            continue
        targets = place(topic, [number for number, _ in homeless], list(count), count)
        for number, group in homeless:
            count[targets[number]] += 1
            moves.append(Move(topic, number, group, targets[number]))
    return moves


def even_out(
    maps: Mapping[str, QueueMap], groups: Sequence[str], left_alone: Collection[str] = ()
) -> list[Move]:
    """The fewest moves after which no group of ``groups`` has two queues more than another.

    Queues at groups that are not among ``groups`` or ``left_alone`` all move. With one new group
    among n at most one queue in n moves. Queues that move already are left alone.

    Args:
        maps: of one cluster, by topic.
        groups: that may have queues.
        left_alone: other groups, whose queues stay, and that get none.
    """
    if not groups:
        return []
    load = dict.fromkeys(sorted(groups), 0)
    at: dict[str, set[tuple[str, int]]] = {group: set() for group in load}
    for topic, queues in maps.items():
        for number, queue in enumerate(queues.queues):
            if queue.goal not in load:
                continue
            load[queue.goal] += 1
            if not queue.target and not queue.is_full:
                at[queue.goal].add((topic, number))
    moves = rehouse(maps, list(load), load, left_alone)
    for move in moves:
        load[move.target] += 1
    ranked: dict[tuple[str, str], list[tuple[str, int]]] = {}  # by whose queues, and for whom
    while True:
        least = min(load, key=lambda group: load[group])
        most = max(load, key=lambda group: (load[group], bool(at[group])))
        if load[most] - load[least] < 2 or not at[most]:
            return moves
        if (most, least) not in ranked:
            ranked[most, least] = sorted(at[most], key=partial(_rank, least))
        going = ranked[most, least].pop()
        if going not in at[most]:
            continue  # it has gone elsewhere
        at[most].remove(going)
        load[most] -= 1
        load[least] += 1
        moves.append(Move(*going, most, least))
