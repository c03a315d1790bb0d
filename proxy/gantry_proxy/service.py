"""The service ``apache.rocketmq.v2.MessagingService``: which method is served by what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from gantry_protocol.errors import GantryError, WireError
from google.protobuf.message import DecodeError

from gantry_proxy import messages
from gantry_proxy.core import refusals
from gantry_proxy.core.refusals import CallRefused
from gantry_proxy.core.resources import group_of, topic_of
from gantry_proxy.core.routes import add_assignments, add_queues
from gantry_proxy.rpc import Methods, Streaming, Unary

if TYPE_CHECKING:
    from gantry_proxy.access import CallGate
    from gantry_proxy.calls import Masters
    from gantry_proxy.clients import Clients
    from gantry_proxy.consuming import Consuming
    from gantry_proxy.lites import Lites
    from gantry_proxy.producing import Producing
    from gantry_proxy.pulling import Pulling
    from gantry_proxy.rpc import Call

NAME = "apache.rocketmq.v2.MessagingService"

Handler = Callable[[Any, "Call"], Awaitable[Any]]
StreamHandler = Callable[[Any, "Call"], AsyncIterator[Any]]


class Routing:
    """QueryRoute and QueryAssignment."""

    def __init__(self, masters: Masters) -> None:
        self._masters = masters

    async def route(self, wanted: Any, call: Call) -> Any:
        """QueryRoute.

        Raises:
            CallRefused: there is no such topic.
        """
        groups = await self._masters.route(topic_of(wanted.topic))
        response = messages.QueryRouteResponse()
        add_queues(response, wanted.topic, _endpoints(wanted), groups)
        refusals.write(response.status)
        return response

    async def assignment(self, wanted: Any, call: Call) -> Any:
        """QueryAssignment.

        Raises:
            CallRefused: there is no such topic, or nothing of it may be read.
        """
        topic, group = topic_of(wanted.topic), group_of(wanted.group)
        groups = await self._masters.route(topic)
        config = await self._masters.consumer_group(topic, group)
        response = messages.QueryAssignmentResponse()
        in_order = config.consume_message_orderly
        add_assignments(response, wanted.topic, _endpoints(wanted), groups, in_order=in_order)
        if not response.assignments:
            raise CallRefused("FORBIDDEN", "no readable queue")
        refusals.write(response.status)
        return response


def _endpoints(wanted: Any) -> Any:
    if not wanted.endpoints.addresses:
        raise CallRefused("ILLEGAL_ACCESS_POINT", "the request names no endpoint of this proxy")
    return wanted.endpoints


def methods(
    gate: CallGate,
    routing: Routing,
    producing: Producing,
    consuming: Consuming,
    pulling: Pulling,
    clients: Clients,
    lites: Lites,
) -> Methods:
    """The methods of the service; each call comes through the gate before anything is served."""
    served = {
        "QueryRoute": routing.route,
        "QueryAssignment": routing.assignment,
        "Heartbeat": clients.heartbeat,
        "NotifyClientTermination": clients.leave,
        "SendMessage": producing.send,
        "EndTransaction": producing.end_transaction,
        "RecallMessage": producing.recall,
        "AckMessage": consuming.acknowledge,
        "ChangeInvisibleDuration": consuming.change,
        "ForwardMessageToDeadLetterQueue": consuming.bury,
        "UpdateOffset": pulling.update_offset,
        "GetOffset": pulling.get_offset,
        "QueryOffset": pulling.query_offset,
        "SyncLiteSubscription": lites.sync,
    }
    return Methods(
        NAME,
        {name: _unary(gate, name, handler) for name, handler in served.items()},
        {
            "ReceiveMessage": _streaming(gate, "ReceiveMessage", consuming.receive),
            "PullMessage": _streaming(gate, "PullMessage", pulling.pull),
        },
        {"Telemetry": clients.telemetry},
    )


def _unary(gate: CallGate, name: str, handler: Handler) -> Unary:
    asked = getattr(messages, f"{name}Request")
    answered = getattr(messages, f"{name}Response")

    async def serve(data: bytes, call: Call) -> bytes:
        try:
            wanted = asked.FromString(data)
            gate.admit(name, wanted, call)
            made = await handler(wanted, call)
        except DecodeError as error:
            made = _refusal(answered, "BAD_REQUEST", f"the request does not read: {error}")
        except CallRefused as refused:
            made = _refusal(answered, refused.code, str(refused))
        except WireError as error:
            made = _refusal(answered, "INTERNAL_SERVER_ERROR", f"a broker's answer: {error}")
        except GantryError as error:
            made = _refusal(answered, "BAD_REQUEST", str(error))
        encoded: bytes = made.SerializeToString()
        return encoded

    return serve


def _refusal(kind: Any, code: str, message: str) -> Any:
    made = kind()
    refusals.write(made.status, code, message)
    return made


def _streaming(gate: CallGate, name: str, handler: StreamHandler) -> Streaming:
    asked = getattr(messages, f"{name}Request")
    refusal = partial(_refusal, getattr(messages, f"{name}Response"))

    async def serve(data: bytes, call: Call) -> AsyncIterator[bytes]:
        try:
            wanted = asked.FromString(data)
            gate.admit(name, wanted, call)
        except DecodeError as error:
            text = f"the request does not read: {error}"
            yield refusal("BAD_REQUEST", text).SerializeToString()
            return
        except CallRefused as refused:
            yield refusal(refused.code, str(refused)).SerializeToString()
            return
        async for answer in handler(wanted, call):
            yield answer.SerializeToString()

    return serve
