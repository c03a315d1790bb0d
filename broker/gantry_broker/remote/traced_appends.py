"""The master's part in sends that a front has answered and traces.

The front names its own span beside the record (``AppendRecords.parents``); the span here is a part
of it: `StoreRecord`, with the same parts as a send that came to the master itself. A front that
names none, which is one of an older version or without tracing, has nothing traced here: whether a
send is traced was decided there.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gantry_protocol.codes import ResponseCode
from gantry_protocol.tracing.context import parent_of

from gantry_broker.clients.core.send_trace import SendTrace

if TYPE_CHECKING:
    from gantry_broker.clients.traced_sends import OpenSends
    from gantry_broker.remote import messages as wire

NAME = "StoreRecord"


class TracedAppends:
    """Those of one session with a front, until they are answered; as many as may be unanswered.

    Args:
        sends: of the mastership; has the clock, the syncs and the export.
    """

    def __init__(self, sends: OpenSends) -> None:
        self._sends = sends
        self._open: dict[int, SendTrace] = {}  # by the number of the send

    def arrived(self, message: wire.AppendRecords) -> None:
        """A frame has come, with a parent for some of its records."""
        for at, text in message.parents.items():
            parent = parent_of(text)
            if parent is None or not parent.sampled or not 0 <= at < len(message.records):
                continue
            record = message.records[at]
            now_ns = self._sends.now_ns()
            self._sends.watched += 1
            self._open[message.number + at] = SendTrace(
                trace_id=parent.trace_id,
                span_id=random.getrandbits(64) or 1,
                parent_id=parent.span_id,
                arrived_ns=now_ns,
                attributes={
                    "messaging.system": "rocketmq",
                    "messaging.operation.name": NAME,
                    "messaging.destination.name": record.topic,
                    "messaging.message.body.size": len(record.body),
                    "gantry.broker_group": self._sends.group,
                },
                name=NAME,
                begun_ns=now_ns,
            )

    def appended(self, number: int, count: int) -> None:
        """These stand in the log."""
        for at in range(number, number + count) if self._open else ():
            if at in self._open:
                self._open[at].appended_ns = self._sends.now_ns()

    def confirmed(self, message: wire.Appended) -> None:
        """The outcome of some is known."""
        for at in range(message.number, message.number + len(message.stored)):
            if at in self._open:
                self._open[at].confirmed_ns = self._sends.now_ns()

    def answered(self, message: wire.Appended) -> None:
        """It is on its way to the front."""
        for index in range(message.count) if self._open else ():
            trace = self._open.pop(message.number + index, None)
            if trace is None:
                continue
            self._sends.watched -= 1
            trace.attributes["gantry.response_code"] = int(message.code)
            if message.stored:
                stored = message.stored[index]
                trace.end = stored.end
                trace.attributes["messaging.destination.partition.id"] = str(stored.queue_id)
            is_well = message.code == ResponseCode.SUCCESS
            error = None if is_well else message.remark or f"code {int(message.code)}"
            self._sends.finished(trace, error)

    def close(self) -> None:
        """The session is over; the front has what is open stored by the next master."""
        self._sends.watched -= len(self._open)
        self._sends.lost(len(self._open))
        self._open.clear()
