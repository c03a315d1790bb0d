"""Small rules of the driver that need no network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from gantry_controller.node import NodeOptions
from gantry_controller.node.links import PeerLinks
from gantry_controller.node.ticker import TICK_S, Ticker
from gantry_controller.raft.codec import encode
from gantry_controller.raft.errors import MessageError
from gantry_controller.raft.messages import HeartbeatReply, Message
from gantry_protocol.errors import ConfigError
from gantry_protocol.types import NodeId, Term

if TYPE_CHECKING:
    from pathlib import Path

ME, A, B = NodeId(1), NodeId(2), NodeId(3)


def options(directory: Path, **changes: Any) -> NodeOptions:
    peers = {ME: "127.0.0.1:1", A: "127.0.0.1:2", B: "127.0.0.1:3"}
    return NodeOptions(
        **{"cluster_uid": "q", "node_id": ME, "peers": peers, "directory": directory, **changes}
    )


class StalledLoop:
    """A loop that was busy for ten seconds."""

    def __init__(self) -> None:
        self.now = 10.0  # anything but zero
        self.timers: list[float] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, *_: object) -> None:
        self.timers.append(when)

    def call_later(self, delay: float, *_: object) -> None:
        self.timers.append(self.now + delay)


def test_time_during_a_stall_is_not_silence_of_others() -> None:
    told: list[bool] = []
    ticker = Ticker(lambda: told.append(True))
    loop = StalledLoop()
    ticker.start(loop)  # type: ignore[arg-type]  # only what a ticker needs
    loop.now += 10
    ticker._tick()
    assert (ticker.take(), ticker.take(), told) == (2, 0, [True])
    loop.now += TICK_S * 1.01
    ticker._tick()
    assert ticker.take() == 1
    assert loop.timers[-2:] == [pytest.approx(20 + TICK_S), pytest.approx(20 + 2 * TICK_S)]


def test_times_become_ticks(tmp_path: Path) -> None:
    raft = options(tmp_path, election_timeout_ms=400, heartbeat_ms=60).raft()
    assert (raft.election_ticks, raft.heartbeat_ticks) == (20, 3)
    raft = options(tmp_path, election_timeout_ms=100, heartbeat_ms=100).raft()
    assert raft.heartbeat_ticks < raft.election_ticks
    with pytest.raises(ConfigError, match="Node 9 is not among the peers"):
        options(tmp_path, node_id=NodeId(9)).raft()


def test_a_peer_speaks_only_for_itself(tmp_path: Path) -> None:
    received: list[Message] = []
    links = PeerLinks(
        options(tmp_path),
        receive=lambda _, messages: received.extend(messages),
        receive_snapshot=lambda *_: None,
        process_gone=lambda _: None,
        changed=lambda _: None,
    )
    message = HeartbeatReply(A, ME, Term(1), 0, 0)
    links._on_frames(A, [encode(message)])
    assert received == [message]
    with pytest.raises(MessageError, match="node 3 sent a message in the name of 2"):
        links._on_frames(B, [encode(message)])
    assert received == [message]


async def test_each_begin_and_end_of_a_connection_is_passed_on(tmp_path: Path) -> None:
    changed: list[NodeId] = []
    links = PeerLinks(
        options(tmp_path),
        receive=lambda *_: None,
        receive_snapshot=lambda *_: None,
        process_gone=lambda _: None,
        changed=changed.append,
    )
    links._on_greeted(A, "")
    assert changed == [A]
    links._on_left(A)
    assert changed == [A, A]
