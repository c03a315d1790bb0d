"""Messages by key or by unique key, newest first: QueryMessage (12).

Upstream: ``QueryMessageProcessor``. Tools ask with a window of store times; a client that looks for
one message by its id says so, and then only unique keys count.
"""

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import RemotingCommand, reply
from gantry_protocol.headers import from_ext, to_ext
from gantry_protocol.headers.brokeradmin import (
    QueryMessageRequestHeader,
    QueryMessageResponseHeader,
)
from gantry_protocol.remoting.connection import Connection

from gantry_broker.clients.view import GroupView
from gantry_broker.store.contract import GetResult, KeyRead, Refusal

UNIQUE_MAX_COUNT = 32  # upstream's defaultQueryMaxNum, in place of what the client says
_UNIQUE_INDEX = "U"  # ``indexType`` of clients that name it


class Queries:
    """Answers queries by key from the store of one mastership."""

    def __init__(self, view: GroupView) -> None:
        self._store = view.store

    def by_key(self, conn: Connection, request: RemotingCommand) -> None:
        """QueryMessage (12)."""
        header = from_ext(QueryMessageRequestHeader, request.ext)
        is_unique = header.unique_key_query or header.index_type == _UNIQUE_INDEX
        wanted = KeyRead(
            header.topic,
            header.key,
            UNIQUE_MAX_COUNT if is_unique else header.max_num,
            header.begin_timestamp,
            header.end_timestamp,
            is_unique,
        )
        self._store.read(wanted, lambda result: conn.reply(request, _answer(request, result)))


def _answer(request: RemotingCommand, result: GetResult | Refusal) -> RemotingCommand:
    if isinstance(result, Refusal):
        return reply(request, *result)
    known = to_ext(QueryMessageResponseHeader(result.known_ms, max(result.next_offset, 0)))
    if result.count:
        return reply(request, ext=known, body=result.body)
    remark = "can not find message, maybe time range not correct"
    return reply(request, ResponseCode.QUERY_NOT_FOUND, remark, ext=known)
