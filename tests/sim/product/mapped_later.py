"""Messages of a mapped topic that are delivered later, when their queues may be elsewhere.

A broker group parks what it is given for a queue that it has. Once that is due the queue may have
moved, or move just then, and the message goes to whoever has it. Each that was acknowledged is
delivered, at least once, and not before its time; what was refused is not.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gantry_protocol.codes import RequestCode, ResponseCode
from sim.kernel.world import Violation
from sim.product.line import is_unknown, send_ext
from sim.product.mapped import BURST, OLDER, SENT_TO, STATIC, TOPIC, WITHIN_S, Lines, Mapped, Row
from sim.product.parked import STEPS_MAX
from sim.product.workload import Rests

if TYPE_CHECKING:
    from random import Random

    from sim.product.cluster import Cluster

LEVELS_MS = (300, 1_500)
TIMERS_MS = (50, 3_000)
DELAY_LEVELS = " ".join(f"{delay_ms}ms" for delay_ms in LEVELS_MS)
NAME = "later"
CLIENTS = {STATIC: 2, OLDER: 1}


class MappedLater(Mapped):
    """See the module; beside what other clients of the topic do.

    Attributes:
        later: messages that are to be delivered, and whether somebody has read them.
    """

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self.later: dict[str, bool] = {}
        self._due_us: dict[str, int] = {}

    def start(self) -> None:
        """Begin."""
        super().start()
        for version, count in CLIENTS.items():
            for number in range(count):
                name = f"{NAME}-{version}-{number}"
                self._client(name, self._delay, name, version)

    async def _delay(self, rng: Random, lines: Lines, name: str) -> None:
        """One message after the other, at any group."""
        rests, number = Rests(self._cluster, name, BURST), 0
        while not self._stops:
            body = f"{name}/{number}"
            number += 1
            if rng.random() < 0.5:
                level = rng.randint(1, len(LEVELS_MS))
                delay_ms, asked = LEVELS_MS[level - 1], f"DELAY\x01{level}\x02"
            else:
                delay_ms = rng.randint(*TIMERS_MS)
                asked = f"TIMER_DELAY_MS\x01{delay_ms}\x02"
            waits_us = int(delay_ms * 1000 * (1 - self._cluster.drift))
            self._due_us[body] = self._cluster.world.now_us + waits_us - 1000 * STEPS_MAX
            self.unsure.add(body)
            ext = send_ext(TOPIC, body, rng.randrange(SENT_TO), asked)
            line = self._any(rng, lines)
            answer = await line.ask(RequestCode.SEND_MESSAGE_V2, ext, body.encode(), WITHIN_S)
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self.later.setdefault(body, False)
                self._cluster.world.count("mapped-later")
            elif not is_unknown(answer):
                self.unsure.discard(body)
                self.refused.add(body)
            await asyncio.sleep(rng.choice([0.02, 0.1, 0.3]))
            await rests.after_turn()

    def _awaits(self, queue: int) -> bool:
        """Until all have come, wherever that is: a queue that is elsewhere may not be theirs."""
        return super()._awaits(queue) or not all(self.later.values())

    def _was_read(self, queue: int, row: Row) -> None:
        """Raises Violation: something comes too early, or was refused."""
        now_us = self._cluster.world.now_us
        for body in row.values():
            if body not in self._due_us:
                continue
            early_us = self._due_us[body] - now_us
            if early_us > 0 and self._cluster.clocks_agree:
                raise Violation(f"{body} is in queue {queue} {early_us} us before its time")
            if body in self.refused:
                raise Violation(f"{body} was refused, and is in queue {queue}")
            self.later[body] = True
            self._cluster.world.count("mapped-later-read")

    def _once(self, everything: list[str]) -> list[str]:
        """Without what may come twice: its group stores it again if it hears no answer."""
        return [body for body in super()._once(everything) if body not in self._due_us]

    def judge(self) -> None:
        """Raises Violation."""
        missing = [body for body, is_read in self.later.items() if not is_read]
        if missing:
            raise Violation(f"{len(missing)} of the mapped topic are not delivered: {missing[:5]}")
        super().judge()
