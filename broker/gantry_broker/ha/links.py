"""All replication links of one replica: those of its own replicas, the connection to the master.

Incoming links come from the process's ``listener``, which knows by their Hello that they name this
group; here the group's uid is compared as well, so that a group that was deleted and made again
under its old name is another one. The number of links is bounded.

A ``Link`` is one connection, either way round. It has no task and no timer of its own. Messages of
one loop turn leave in one write where the transport allows. A link that cannot take more says so
(``congested``) and the owner stops reading the log for it; bytes that wait are bounded by the
transport's high-water mark and one batch. A malformed message ends the link.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from gantry_protocol.errors import ConfigError, ConnectError, KeyRefused
from gantry_protocol.member_tls.arriving import peer_names
from gantry_protocol.member_tls.names import MemberKind, MemberName, Names
from gantry_protocol.process import log
from gantry_protocol.quorum_key import NO_KEY, KeyFile, Purpose
from gantry_protocol.remoting.client import open_connection
from gantry_protocol.types import Epoch

from gantry_broker.ha.wire import Caller, Decoder, LinkError, Received, encode
from gantry_broker.replica import events as ev
from gantry_broker.replica.messages import Farewell, Message, Range, RangeAsk

MAX_LINKS = 64  # a group has at most nine members; the rest is for links that are just ending
STOP_WITHIN_S = 0.5  # for the last bytes of links that end with us
CONNECT_TIMEOUT_S = 0.5  # members are near; a dead machine must not hold up the next attempt
HIGH_WATER_BYTES = 1024 * 1024
_CLOSE_GRACE_S = 0.5  # for a last message, such as the reason, to leave

_log = log.get("ha")

Deliver = Callable[[ev.Event], None]


class Link(asyncio.Protocol):
    """One connection.

    Args:
        number: positive for incoming links, negative for outgoing ones.
        caller: who we are, for our Hello.
        received: called with this link and each message.
        closed: called with this link once it has ended, unless we closed it ourselves.
        writable: called with this link when it can take more after it was congested.
        gone: called with this link when its socket is gone, whoever closed it.

    Attributes:
        peer: ``ip:port`` of the other side, empty before the connection is there.
        congested: do not send log bytes now.
    """

    def __init__(
        self,
        number: int,
        caller: Caller,
        *,
        opened: Callable[["Link"], None],
        received: Callable[["Link", Received], None],
        closed: Callable[["Link"], None],
        writable: Callable[["Link"], None],
        gone: Callable[["Link"], None],
    ) -> None:
        """A link without a connection yet."""
        self.number = number
        self.peer = ""
        self.congested = False
        self._caller = caller
        self._opened = opened
        self._received = received
        self._closed = closed
        self._writable = writable
        self._gone = gone
        self._decoder = Decoder()
        self._transport: asyncio.Transport | None = None
        self._ended = False

    def belongs_to(
        self,
        number: int,
        *,
        received: Callable[["Link", Received], None],
        closed: Callable[["Link"], None],
        writable: Callable[["Link"], None],
        gone: Callable[["Link"], None],
    ) -> None:
        """Somebody else owns this link from now on, under ``number``."""
        self.number = number
        self._received = received
        self._closed = closed
        self._writable = writable
        self._gone = gone

    @property
    def ended(self) -> bool:
        """Whether we have closed it, or it is gone."""
        return self._ended

    @property
    def names(self) -> Names | None:
        """The names in the other side's certificate; None where it has shown none."""
        return peer_names(self._transport)

    def send(self, message: Message) -> None:
        """Send now; nothing happens on a link that is not there."""
        if self._transport is None or self._ended:
            return
        pieces = encode(message, self._caller)
        self._transport.writelines(pieces)  # one write, without joining them

    def close(self) -> None:
        """End the link; what was sent is given a moment to leave."""
        if self._ended:
            return
        self._ended = True
        transport = self._transport
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                asyncio.get_running_loop().call_later(_CLOSE_GRACE_S, transport.abort)

    def abort(self) -> None:
        """End the link now; what was not sent is dropped."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        tcp = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        if self._ended:
            tcp.abort()
            return
        self._transport = tcp
        tcp.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        peer = tcp.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else ""
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone, whoever ended it."""
        self._transport = None
        if not self._ended:
            self._ended = True
            self._closed(self)
        self._gone(self)

    def pause_writing(self) -> None:
        """The other side does not read fast enough."""
        self.congested = True

    def resume_writing(self) -> None:
        """It caught up."""
        self.congested = False
        if not self._ended:
            self._writable(self)

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        if self._ended:
            return
        try:
            messages = self._decoder.feed(data)
        except LinkError as error:
            _log.warning("replication link ended", peer=self.peer, reason=error)
            self.close()
            self._closed(self)
            return
        for message in messages:
            if self._ended:
                return
            self._received(self, message)


class ReplicationLinks:
    """The links of one replica.

    Args:
        caller: which group this is; asked each time, since the group's uid comes with registration.
        deliver: takes ``LinkOpened``, ``LinkClosed`` and ``Received`` for the replica core.
        writable: called when some link can take log bytes again.
        key: shown to the master, which shows it, too.
        give: answers a member that asks for a range of the log.
    """

    def __init__(
        self,
        caller: Callable[[], Caller],
        deliver: Deliver,
        writable: Callable[[], None],
        key: KeyFile = NO_KEY,
        give: Callable[[RangeAsk], Range] = lambda ask: Range(ask.start, b"", "not here"),
    ) -> None:
        """No links yet."""
        self._give = give
        self.refused = 0
        self._key = key
        self._said = ""  # why the master is not spoken to, as the log has it
        self._caller = caller
        self.deliver = deliver
        self._writable = writable
        self._links: dict[int, Link] = {}
        self._sockets: dict[Link, None] = {}
        self._accepted = 0
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._stopped = False
        self._no_sockets = asyncio.Event()
        self._no_sockets.set()

    async def stop(self) -> None:
        """End everything; the core hears no more."""
        self._stopped = True
        for link in list(self._links.values()):
            link.close()
        self._links.clear()
        tasks = list(self._connecting.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WITHIN_S):
                await self._no_sockets.wait()
        for link in list(self._sockets):
            link.abort()

    # ---- what the core wants

    def open(self, number: int, address: str) -> None:
        """Connect; ``LinkOpened`` or ``LinkClosed`` follows."""
        link = Link(
            number,
            self._caller(),
            opened=self._opened,
            received=self._received,
            closed=self._ended,
            writable=lambda _: self._writable(),
            gone=self._gone,
        )
        self._links[number] = link
        task = asyncio.create_task(self._connect(link, address))
        self._connecting[number] = task
        task.add_done_callback(lambda _: self._connecting.pop(number, None))

    def send(self, number: int, message: Message) -> None:
        """Send on a link; nothing happens if it has ended."""
        link = self._links.get(number)
        if link is not None:
            link.send(message)

    def close(self, number: int) -> None:
        """End a link."""
        link = self._links.pop(number, None)
        if link is not None:
            link.close()
        task = self._connecting.get(number)
        if task is not None:
            task.cancel()

    def is_congested(self, number: int) -> bool:
        """Whether log bytes must wait; True for a link that is gone."""
        link = self._links.get(number)
        return link is None or link.congested

    def peer(self, number: int) -> str:
        """``ip:port`` of the other side."""
        link = self._links.get(number)
        return "" if link is None else link.peer

    def __len__(self) -> int:
        return len(self._links)

    # ---- connections

    async def _connect(self, link: Link, address: str) -> None:
        caller = self._caller()
        try:
            await open_connection(
                lambda: link,
                address,
                CONNECT_TIMEOUT_S,
                key=self._key,
                purpose=Purpose.REPLICATION,
                expected=MemberName(MemberKind.BROKER, caller.cluster, caller.group),
            )
        except (KeyRefused, ConfigError) as error:
            if self._said != str(error):
                self._said = str(error)
                _log.error("master cannot be spoken to", address=address, reason=error)
            self._ended(link)
        except ConnectError as error:
            _log.debug("master cannot be reached", address=address, reason=error)
            self._ended(link)
        else:
            self._said = ""

    def adopt(self, link: Link, hello: Received) -> None:
        """Take over a link that began with a Hello for a group of our name, or end it."""
        if len(self._links) >= MAX_LINKS or self._stopped:
            self.refused += 1
            link.close()
            return
        self._accepted += 1
        link.belongs_to(
            self._accepted,
            received=self._received,
            closed=self._ended,
            writable=lambda _: self._writable(),
            gone=self._gone,
        )
        self._links[link.number] = link
        self._note_socket(link)
        if self._welcome(link, hello):
            self.deliver(ev.Received(link.number, hello.message))

    def give(self, link: Link, ask: Received) -> None:
        """Answer a member that asks for a range of the log."""
        assert isinstance(ask.message, RangeAsk)
        assert ask.caller is not None
        if same_group(self._caller(), ask.caller):
            link.send(self._give(ask.message))
        else:
            link.send(Range(ask.message.start, b"", "this is another group"))

    def _note_socket(self, link: Link) -> None:
        self._sockets[link] = None
        self._no_sockets.clear()

    def _gone(self, link: Link) -> None:
        self._sockets.pop(link, None)
        if not self._sockets:
            self._no_sockets.set()

    def _opened(self, link: Link) -> None:
        self._note_socket(link)
        self.deliver(ev.LinkOpened(link.number))

    def _received(self, link: Link, received: Received) -> None:
        self.deliver(ev.Received(link.number, received.message))

    def _welcome(self, link: Link, hello: Received) -> bool:
        """Whether it comes from a member of this very group; otherwise it is told why and ends."""
        mine, theirs = self._caller(), hello.caller
        assert theirs is not None, "the listener hands over links that began with Hello"
        if same_group(mine, theirs):
            return True
        reason = (
            f"you are of group {theirs.cluster}/{theirs.group} ({theirs.group_uid}), "
            f"this is {mine.cluster}/{mine.group} ({mine.group_uid})"
        )
        self.refused += 1
        _log.warning("replica refused", peer=link.peer, reason=reason)
        link.send(Farewell(epoch=Epoch(0), reason=reason))
        self.close(link.number)
        return False

    def _ended(self, link: Link) -> None:
        if self._links.pop(link.number, None) is not None:
            self.deliver(ev.LinkClosed(link.number))


def same_group(one: Caller, other: Caller) -> bool:
    """Whether two replicas are of one group; an unknown uid matches any."""
    if (one.cluster, one.group) != (other.cluster, other.group):
        return False
    return one.group_uid == other.group_uid or "" in (one.group_uid, other.group_uid)
