"""Sends that a front answers itself and that are traced, where tracing is on.

Without it a front has the plain sender. When it is switched on, another takes the place of that
one, and stays until the store is lost, for sends under way. For what a front passes on see
``traced_passing``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gantry_protocol.errors import GantryError

from gantry_broker.clients.plain_sends import PlainSender, SendHeader

if TYPE_CHECKING:
    from gantry_protocol.bodies import TopicConfig
    from gantry_protocol.command import RemotingCommand
    from gantry_protocol.remoting.connection import Connection

    from gantry_broker.clients.traced_sends import OpenSends
    from gantry_broker.remote.store import RemoteStore


class TracedPlainSender(PlainSender):
    """A plain sender that takes the moments of sends that are traced."""

    _sends: OpenSends
    _remote: RemoteStore

    @classmethod
    def instead_of(
        cls, sender: PlainSender, sends: OpenSends, remote: RemoteStore
    ) -> TracedPlainSender:
        """One that goes on where a sender is; what that one has begun it ends itself.

        Args:
            sender: the one before.
            sends: decides which are traced.
            remote: the store, which is told the span that its part belongs to.
        """
        made = cls.__new__(cls)
        vars(made).update(vars(sender), _sends=sends, _remote=remote)
        return made

    def store(
        self, conn: Connection, request: RemotingCommand, header: SendHeader, topic: TopicConfig
    ) -> RemotingCommand | None:
        """Hand over what was sent; see ``PlainSender.store``."""
        if not (self._sends.is_on and self._sends.arrived(conn, request)):
            return super().store(conn, request, header, topic)
        trace = self._sends.of(conn, request)
        assert trace is not None
        trace.asked_as = "store"
        trace.begun_ns = self._sends.now_ns()
        trace.attributes["messaging.destination.name"] = header.topic
        trace.attributes["messaging.rocketmq.client_group"] = header.producer_group
        self._remote.parent = trace.traceparent
        try:
            answer = super().store(conn, request, header, topic)
        except GantryError as error:
            self._sends.ended(conn, request, error.answer_code, str(error))
            raise
        finally:
            self._remote.parent = ""  # where it was refused before
        if answer is not None:
            self._sends.refused(conn, request, answer)
        return answer

    def _ended(self, conn: Connection, request: RemotingCommand, *told: Any) -> None:
        *_, unique_key, _, outcome = told
        is_traced = self._sends.confirmed(conn, request, unique_key, outcome)
        super()._ended(conn, request, *told)
        if is_traced:
            self._sends.ended(conn, request, outcome.code, outcome.remark)
