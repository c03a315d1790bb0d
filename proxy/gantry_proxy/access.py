"""The gate before calls: who has made one, and whether that user may.

A proxy that has the quorum's key is told the users of its cluster by the controllers, as brokers
are, and judges each call before it is served (ADR 0084). What it asks brokers for a client is
signed with the key, and names the user and the address that it has judged: brokers judge it once
more, and those requests again that name a message by its place. A proxy without the key judges
nobody.

Nobody is served before the controllers have said whether access is on. While it is off nothing is
judged, and nothing is signed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gantry_protocol.access.rules import Action
from gantry_protocol.errors import ResolveError
from gantry_protocol.hosts import split_address
from gantry_protocol.remoting.admission import (
    BEHALF_FIELD,
    SOURCE_FIELD,
    Admitted,
    Denied,
    unsigned,
)
from gantry_protocol.remoting.demands import Demands, topic

from gantry_proxy.core.credentials import UnreadableError, credentials
from gantry_proxy.core.demands import TABLE
from gantry_proxy.core.refusals import CallRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from gantry_protocol.remoting.known_users import KnownUsers

    from gantry_proxy.rpc import Call

DENIED = "UNAUTHORIZED"  # upstream's, whether it is the signature or a rule
NOT_YET = "INTERNAL_SERVER_ERROR"  # every client tries again


class CallGate:
    """See the module.

    Args:
        users: of the cluster; None: nobody is judged here.
    """

    def __init__(self, users: KnownUsers | None) -> None:
        self._users = users

    @property
    def is_ready(self) -> bool:
        """Whether it is known who may pass."""
        return self._users is None or self._users.is_known

    def admit(self, method: str, wanted: Any, call: Call) -> None:
        """Let a call in; from now on it says on whose behalf it is served.

        Raises:
            CallRefused: its user may not, or is none.
        """
        users, call.behalf = self._users, {}
        if users is None:
            return
        if not users.is_known:
            raise CallRefused(NOT_YET, "the users of the cluster are not known here yet")
        if not users.enabled:
            return
        row, source = TABLE.get(method), source_of(call)
        verdict = self._verdict(
            users, method, None if row is None else partial(row, wanted), call, source
        )
        if isinstance(verdict, Denied):
            users.note(method, source, verdict, verdict.user)
            raise CallRefused(DENIED, verdict.sentence)
        users.note(method, source, None, verdict.user)
        call.behalf = {BEHALF_FIELD: verdict.user, SOURCE_FIELD: source}

    def may_be_asked(self, call: Call, name: str) -> bool:
        """Whether the client of a stream may be shown a message of the topic ``name``."""
        users = self._users
        if users is None or (users.is_known and not users.enabled):
            return True
        if not users.is_known:
            return False
        demanded = (topic(name, Action.PUB),)
        verdict = self._verdict(users, "Telemetry", lambda: demanded, call, source_of(call))
        return isinstance(verdict, Admitted)

    def _verdict(
        self,
        users: KnownUsers,
        method: str,
        demanded: Callable[[], Demands] | None,
        call: Call,
        source: str,
    ) -> Admitted | Denied:
        try:
            shown = credentials(call.metadata)
        except UnreadableError as error:
            return Denied("-", "unsigned", f"{method} is not signed as it has to be: {error}")
        if shown is None:
            return unsigned(method)
        known = users.users
        denied = known.not_signed(shown.user, method, lambda user: shown.are_of(user.secret))
        return denied or known.judged(shown.user, method, demanded, source)


def source_of(call: Call) -> str:
    """The IP address that a call comes from; empty where nobody knows."""
    try:
        return split_address(call.peer)[0]
    except ResolveError:
        return ""
