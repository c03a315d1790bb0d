"""The span that a send is a part of, as whoever passes the send on tells the master.

A request that is passed on stays what it was: a field that is added to it would spoil a client's
signature, and its frame would have to be made anew. So the span is named by a frame ahead of the
send: ``GANTRY_PASSED_ON``, which nobody answers, with the send's number and the field
`traceparent`. A master of an older version takes nothing from it, and decides by itself whether the
send is traced.

Rule protected: a span belongs to the next send alone, and only if that has the number. So a
connection keeps one at most.
"""

from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.frame import encode
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.tracing.context import TRACEPARENT, Parent, parent_of

PARENT = "parent"  # in a connection's attrs: number of a send, and the span it is a part of
_MAX_CHARS = 64  # version 00 has 55


def notice(opaque: int, traceparent: str) -> bytes:
    """The frame that names the span of the send behind it, which has the number ``opaque``."""
    made = request(RequestCode.GANTRY_PASSED_ON, {TRACEPARENT: traceparent}, oneway=True)
    made.opaque = opaque
    return encode(made)


def note(conn: Connection, command: RemotingCommand) -> None:
    """Keep what such a frame says for the send behind it."""
    text = (command.ext or {}).get(TRACEPARENT, "")
    if text and len(text) <= _MAX_CHARS:
        conn.attrs[PARENT] = command.opaque, text


def taken_parent(conn: Connection, send: RemotingCommand) -> Parent | None:
    """The span that was named for a send that has just come; None without one."""
    told: tuple[int, str] | None = conn.attrs.pop(PARENT, None)
    return None if told is None or told[0] != send.opaque else parent_of(told[1])
