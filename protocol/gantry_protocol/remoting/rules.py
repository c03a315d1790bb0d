"""Bounds of each kind of request: the size of its body, and the age at which it is dropped.

A request that has waited here for so long that its client has given it up, or is about to, is not
worth serving: it is answered ``SYSTEM_BUSY``, as upstream's fast failure does it, and its client
tries elsewhere.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gantry_protocol.codes import ResponseCode
from gantry_protocol.command import FLAG_RESPONSE, RemotingCommand, reply
from gantry_protocol.frame import MAX_FRAME_BYTES, TOO_LARGE
from gantry_protocol.remoting.stats import ServerStats

BUSY = RemotingCommand(
    code=ResponseCode.SYSTEM_BUSY,
    flag=FLAG_RESPONSE,
    remark="[OVERLOAD]system busy, start flow control for a while",
)


class RequestRule(NamedTuple):
    """Of one code.

    Attributes:
        body_bytes: the largest body.
        age_s: how long it may wait for its turn; infinite: it is served whenever that comes.
    """

    body_bytes: int = MAX_FRAME_BYTES
    age_s: float = float("inf")


_ANSWER = RequestRule()


class RequestRules:
    """See the module.

    Args:
        by_code: of requests that have a rule of their own.
        others: of all others; what answers our own requests may be as large as a frame.
    """

    def __init__(self, by_code: Mapping[int, RequestRule], others: RequestRule) -> None:
        self._by_code = {int(code): rule for code, rule in by_code.items()}
        self._others = others

    def of(self, command: RemotingCommand) -> RequestRule:
        """The rule for a request."""
        if command.is_response:
            return _ANSWER
        return self._by_code.get(command.code, self._others)

    def body_limit(self, command: RemotingCommand) -> int:
        """The largest body that it may have."""
        return self.of(command).body_bytes

    def refuse(
        self, request: RemotingCommand, late_s: float, stats: ServerStats
    ) -> RemotingCommand | None:
        """The answer to what is too large, or has waited too long; None if it is served."""
        rule = self.of(request)
        if request.body is TOO_LARGE:
            stats.too_large += 1
            remark = f"the body of request {request.code} is over the maximum of {rule.body_bytes}"
            return reply(request, ResponseCode.MESSAGE_ILLEGAL, remark)
        if late_s > rule.age_s:
            stats.too_old += 1
            remark = (
                "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue:"
                f" {late_s * 1000:.0f}ms"
            )
            return reply(request, ResponseCode.SYSTEM_BUSY, remark)
        return None


ANY = RequestRules({}, RequestRule())
