"""An honest producer and consumer beside an attack, in a process of their own.

Eight lanes send messages of 1 KiB, one at a time each; one lane pulls what the first of them sends.
``python -m gantry_lab.measure.attack_victim HOST:PORT TOPIC BROKER`` does it for as many seconds as
each line of its input says, and answers with a line of JSON; ``error`` says why there is no figure.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from gantry_cli.client.routes import Queue
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import request
from gantry_protocol.errors import GantryError

from gantry_lab.bench.broker.frames import FrameTemplate
from gantry_lab.bench.broker.work import Sends
from gantry_lab.bench.load import FrameLoad, Numbers, Reply

LANES = 8
SUSPEND_MS = 500
ENOUGH = 1000  # answers for a p99
OFFSET_DIGITS = 19


class Honest(Sends):
    """Sends on all lanes but the last, which follows the first queue.

    Attributes:
        received: messages that were pulled.
        gap_s: the longest time without an acknowledged message.
    """

    def __init__(self, topic: str, broker: str, address: str) -> None:
        queues = [Queue(broker, number, address) for number in range(LANES)]
        super().__init__(topic, queues, LANES)
        ext = {
            "consumerGroup": "victim",
            "topic": topic,
            "queueId": "0",
            "queueOffset": "1234567890123456789",
            "maxMsgNums": "32",
            "sysFlag": "6",
            "commitOffset": "0",
            "suspendTimeoutMillis": str(SUSPEND_MS),
            "subscription": "*",
            "subVersion": "0",
        }
        self._pull = FrameTemplate(LANES, request(RequestCode.PULL_MESSAGE, ext))
        self._offset = 0
        self.received = 0
        self.gap_s = 0.0
        self.last_s = time.perf_counter()

    def first(self, slot: int) -> bytearray:
        return self._pull.at_offset(self._offset) if slot == LANES else super().first(slot)

    def following(self, slot: int, reply: Reply, body: memoryview) -> bytearray | None:
        if slot < LANES:
            now = time.perf_counter()
            self.gap_s = max(self.gap_s, now - self.last_s)
            self.last_s = now
            return super().following(slot, reply, body)
        following = int((reply.ext or Numbers()).next_begin_offset)
        self.received += following - self._offset
        self._offset = following
        return self.first(slot)


async def window(work: Honest, load: FrameLoad, seconds: float) -> dict[str, object]:
    """The work of the victim in so many seconds."""
    work.last_s, work.gap_s, received = time.perf_counter(), 0.0, work.received
    seen = await load.window(0.3, seconds)
    return {
        "sends_per_s": round(seen.messages / seen.seconds, 1),
        "received_per_s": round((work.received - received) / (seconds + 0.3), 1),
        "p99_ms": round(seen.p_ms(0.99), 1) if seen.operations >= ENOUGH else None,
        "gap_ms": round(max(work.gap_s, time.perf_counter() - work.last_s) * 1000),
        "refused": seen.refused,
    }


async def main(address: str, topic: str, broker: str) -> None:
    """See the module."""
    work = Honest(topic, broker, address)
    load: FrameLoad | None = None
    for row in sys.stdin:
        try:
            if load is None:
                load = FrameLoad(work, [address], LANES + 1)
            said = await window(work, load, float(row))
        except GantryError as error:
            said = {"error": str(error)}
            if load is not None:
                load.close()
                load = None
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
