"""Requests that were answered ``SYSTEM_ERROR``: counted by request and reason, and logged.

Nobody else tells of them: a client tries again and says nothing. Reasons are remarks without what
differs from answer to answer; both their number and that of log lines is bounded.
"""

import re

from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.process import log

KINDS_MAX = 200  # what is beyond is counted together
SAY_S = 10.0  # between two lines of one kind
LINES_PER_S = 2.0
OTHERS = ("OTHER", "others")

_REASON_CHARS = 80
_VARYING = re.compile(r"/\S*|\S*\d\S*")  # paths; numbers, and names with one in them
_log = log.get("remoting")

Kind = tuple[str, str]  # name of the request, reason


def kind_of(request: RemotingCommand, remark: str | None) -> Kind:
    """The kind that an answer is counted as."""
    try:
        name = RequestCode(request.code).name
    except ValueError:
        name = str(request.code)
    words = _VARYING.sub("_", (remark or "")[:500]).split()
    return name, " ".join(words)[:_REASON_CHARS]


class ErrorAnswers:
    """Those of one server.

    Attributes:
        counts: by kind.
    """

    def __init__(self) -> None:
        """None yet."""
        self.counts: dict[Kind, int] = {}
        self._said: dict[Kind, tuple[float, int]] = {}  # when, and the count by then
        self._next_line_s = 0.0

    def note(self, request: RemotingCommand, remark: str | None, now_s: float) -> None:
        """Count one, and say so unless much was said lately."""
        kind = kind_of(request, remark)
        if kind not in self.counts and len(self.counts) >= KINDS_MAX:
            kind = OTHERS
        count = self.counts[kind] = self.counts.get(kind, 0) + 1
        said_s, said = self._said.get(kind, (-SAY_S, 0))
        if now_s < self._next_line_s or now_s - said_s < SAY_S:
            return
        self._next_line_s = now_s + 1 / LINES_PER_S
        self._said[kind] = (now_s, count)
        _log.warning(
            "requests are answered with an error",
            request=kind[0],
            reason=(remark or "")[:500],
            count=count - said,
        )
