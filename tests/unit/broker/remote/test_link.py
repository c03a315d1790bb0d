"""One link of the store: what leaves together, and in which order."""

from __future__ import annotations

import asyncio
from typing import Any

from gantry_broker.ha.wire import framed
from gantry_broker.remote.link import StoreLink


class Transport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def close(self) -> None:
        pass


def link_to(transport: Transport) -> StoreLink:
    made = StoreLink(
        opened=lambda link: None,
        received=lambda link, frame: None,
        lost=lambda link, reason: None,
        holds_back=False,
    )
    made.connection_made(transport)
    return made


async def test_frames_of_a_turn_leave_in_one_write_each_in_its_place() -> None:
    transport = Transport()
    link = link_to(transport)
    gathered = [b"a"]
    link.send(framed(1, b"first"))
    link.send_later(lambda: framed(1, b"".join(gathered)))
    link.send(framed(1, b"last"))
    gathered.append(b"b")
    assert transport.written == [], "the turn goes on"
    await asyncio.sleep(0)
    assert transport.written == [framed(1, b"first") + framed(1, b"ab") + framed(1, b"last")]
    await asyncio.sleep(0)
    assert len(transport.written) == 1


async def test_what_is_gathered_leaves_before_a_link_is_closed() -> None:
    transport = Transport()
    link = link_to(transport)
    link.send_later(lambda: framed(1, b"x"))
    link.close("the end")
    link.send_later(lambda: framed(1, b"y"))
    await asyncio.sleep(0)
    assert transport.written == [framed(1, b"x")]
