"""Sends and pulls that a front answers itself, from the store of its group's master.

Everything else goes to the master, where the client has its sessions, and so does each send or pull
that needs more than the tables here: topics that are not there yet, delays, transactions, retries,
and what ``pull_asides`` leaves to it. Nothing here is needed by another front, or by this one after
its store was lost.

Rules protected:

* Only a client that is led to the very master whose store this is, in the same epoch, is answered
  here. So a client's requests go to one master at a time.
* What is unanswered when the store is lost is given to the next master with a mark (``splice``),
  which looks whether it is stored. Nobody is told "unknown".
"""

import time
from functools import partial

from gantry_protocol.command import RemotingCommand
from gantry_protocol.queue_map import MAPPED
from gantry_protocol.remoting.connection import Connection
from gantry_protocol.remoting.glance import Glimpse
from gantry_protocol.remoting.unanswered import PULLS, SENDS
from gantry_protocol.types import Epoch

from gantry_broker.clients.consumers import Consumers
from gantry_broker.clients.plain_sends import PlainSender, is_plain, send_header
from gantry_broker.clients.pull_asides import PullAsides, Serve, pull_header, take
from gantry_broker.clients.pull_reads import PullReader
from gantry_broker.clients.routing import Pipe
from gantry_broker.clients.traced_sends import OpenSends
from gantry_broker.clients.traffic import Traffic
from gantry_broker.front.spread import SpreadStore
from gantry_broker.front.traced_sends import TracedPlainSender
from gantry_broker.front.view import FrontView
from gantry_broker.remote.store import RemoteStore

ASIDE = SENDS | PULLS


class Asides:
    """See the module; made for one store and closed when that is lost.

    Args:
        view: the group.
        store: the same.
        epoch: of the master that keeps it.
        settings: of consumer groups.
        traffic: counts what goes through, for the master.
        spread: the same store, whose reads go to replicas, too; None reads at the master alone.

    Attributes:
        served: requests that were taken, ever.
        pulled: how far groups have pulled here, until the master is told.
        traced: where sends are traced; None where they never were.
    """

    def __init__(
        self,
        view: FrontView,
        store: RemoteStore,
        epoch: Epoch,
        settings: Consumers,
        traffic: Traffic,
        spread: SpreadStore | None = None,
    ) -> None:
        """Nothing is under way."""
        self.traced: OpenSends | None = None
        self.served = 0
        self._view = view
        self._store = store
        self._epoch = epoch
        self._sender = PlainSender(view, traffic, time.time)
        reader = PullReader(store if spread is None else spread, traffic)
        self.pulled = reader.pulled
        self._pulls = PullAsides(store, settings, reader)

    @property
    def parked(self) -> int:
        """Pulls that wait for a record."""
        return self._pulls.parked

    def trace(self, sends: OpenSends) -> None:
        """Take the moments of sends that are traced, from now on."""
        self.traced = sends
        self._sender = TracedPlainSender.instead_of(self._sender, sends, self._store)

    def close(self) -> None:
        """The store is lost: answer nothing more."""
        self._pulls.close()
        if self.traced is not None:
            self.traced.close()

    def forget(self, conn: Connection) -> None:
        """A client left."""
        self._pulls.forget(conn)

    def take(self, pipe: Pipe, glimpse: Glimpse) -> bool:
        """Whether a request is answered here; if not, nothing was done about it."""
        state = self._store.state
        if (
            glimpse.code not in ASIDE
            or pipe.epoch != self._epoch
            or state is None
            or not state.is_offered
        ):
            return False
        find = self._send if glimpse.code in SENDS else self._pull
        taken = take(pipe, glimpse, partial(find, pipe))
        self.served += taken
        return taken

    def _send(self, pipe: Pipe, command: RemotingCommand) -> Serve | None:
        header = send_header(command)
        topic = self._store.topics.lookup(header.topic)
        if topic is None or not is_plain(header) or self._view.accepting_writes() is not None:
            return None
        if MAPPED in topic.attributes:  # whose queues may be elsewhere, as masters know
            return None
        return partial(self._sender.store, pipe.connection, command, header, topic)

    def _pull(self, pipe: Pipe, command: RemotingCommand) -> Serve | None:
        return self._pulls.pull(pipe, command, pull_header(command))
