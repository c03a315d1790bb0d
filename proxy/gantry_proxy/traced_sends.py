"""Sends that are traced, while tracing is on; while it is not a send is what `Producing` does.

A send that is traced tells its master so by a field of the request, which is not stored: the
message stays as its producer made it. One whose call ends by itself, since its client hung up, has
a span with that error.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import TYPE_CHECKING, Any

from gantry_protocol.tracing.context import TRACEPARENT, Parent, is_sampled

from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.core.send_trace import SendTrace, parent_among
from gantry_proxy.messages import CODES
from gantry_proxy.producing import Producing

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_protocol.tracing.export import SpanExport

    from gantry_proxy.calls import Masters
    from gantry_proxy.core.routes import GroupQueues
    from gantry_proxy.rpc import Call


class TracedProducing(Producing):
    """See the module.

    Args:
        masters: the broker groups.
        export: takes the spans.
        ratio: the share of sends without a parent that is traced.
        now_ns: nanoseconds since 1970.
        drawn: at random, from 0 to below 1.

    Attributes:
        ratio: of the arguments; it may change.
    """

    def __init__(
        self,
        masters: Masters,
        export: SpanExport,
        ratio: float,
        now_ns: Callable[[], int] = time.time_ns,
        drawn: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(masters)
        self._export = export
        self.ratio = ratio
        self._now_ns = now_ns
        self._drawn = drawn

    async def send(self, wanted: Any, call: Call) -> Any:
        """SendMessage; see ``Producing.send``."""
        trace = self._begun(wanted, call) if self._export.is_on else None
        if trace is None:
            return await self.store(wanted, call)
        return await self._send_traced(wanted, call, trace)

    def _begun(self, wanted: Any, call: Call) -> SendTrace | None:
        """The trace of a send that has just come; None if it is not traced."""
        parent = parent_among(wanted.messages, call.metadata)
        if not is_sampled(parent, self.ratio, self._drawn()):
            return None
        parent = parent or Parent(random.getrandbits(128) or 1, 0, sampled=True)
        return SendTrace(
            trace_id=parent.trace_id,
            span_id=random.getrandbits(64) or 1,
            parent_id=parent.span_id,
            arrived_ns=self._now_ns(),
            attributes={
                "messaging.system": "rocketmq",
                "messaging.operation.name": "SendMessage",
                "messaging.batch.message_count": len(wanted.messages),
                "network.peer.address": call.peer.rpartition(":")[0],
            },
        )

    async def _send_traced(self, wanted: Any, call: Call, trace: SendTrace) -> Any:
        def routed(group: GroupQueues, topic: str) -> dict[str, str]:
            trace.routed_ns = self._now_ns()
            trace.attributes["messaging.destination.name"] = topic
            trace.attributes["gantry.broker_group"] = group.broker_name
            return {TRACEPARENT: trace.traceparent}

        try:
            response = await self.store(wanted, call, routed)
        except CallRefused as error:
            self._end(trace, str(error))
            raise
        except asyncio.CancelledError:
            self._end(trace, "the client gave up")
            raise
        for entry in response.entries[:1]:
            trace.attributes["messaging.message.id"] = entry.message_id
        status = response.status
        self._end(
            trace, None if status.code == CODES["OK"] else status.message or f"code {status.code}"
        )
        return response

    def _end(self, trace: SendTrace, error: str | None) -> None:
        self._export.add(trace.spans(self._now_ns(), error))
