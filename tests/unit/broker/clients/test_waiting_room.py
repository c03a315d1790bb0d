"""Who may wait, and what is left of it when everybody has gone."""

from __future__ import annotations

import random

from gantry_broker.clients.waiting_room import PULL_BYTES, RoomLimits, WaitingRoom, held_bytes
from gantry_protocol.command import request

LIMITS = RoomLimits(pulls=10, size_bytes=1_000, own_pulls=4, own_bytes=600)


def test_the_bounds_hold_whoever_comes_and_goes() -> None:
    room, rng, inside, refused = WaitingRoom(LIMITS), random.Random(7), [], 0
    for _ in range(5_000):
        if inside and rng.random() < 0.45:
            room.leave(*inside.pop(rng.randrange(len(inside))))
            continue
        guest = (rng.randint(1, 5), rng.choice([10, 90, 300, 700]))
        own = [size for connection, size in inside if connection == guest[0]]
        fits = (
            len(inside) < LIMITS.pulls
            and len(own) < LIMITS.own_pulls
            and sum(size for _, size in inside) + guest[1] <= LIMITS.size_bytes
            and sum(own) + guest[1] <= LIMITS.own_bytes
        )
        assert room.enter(*guest) == fits
        refused += not fits
        if fits:
            inside.append(guest)
        assert (room.pulls, room.size_bytes) == (len(inside), sum(size for _, size in inside))
    assert room.refused == refused > 100
    for guest in inside:
        room.leave(*guest)
    assert (room.pulls, room.size_bytes, room._shares) == (0, 0, {})


def test_what_makes_a_pull_large_counts() -> None:
    small = held_bytes(request(11, {"topic": "t"}), None)
    assert PULL_BYTES < small < PULL_BYTES + 100
    assert held_bytes(request(11, {"topic": "t", "subscription": "x" * 5_000}), None) > 5_000
    assert held_bytes(request(11, {"topic": "t"}), range(100)) > small + 100 * 32
    assert held_bytes(request(11, {"topic": "t"}, b"x" * 700), None) == small + 700
