"""One kept connection to each controller, the one that leads, and the nearest that follows.

A broker heartbeats to every controller, so it keeps a connection to each; whether that connection
is open is also evidence of its life. Changes go to the leader where it is known (GetMetadataInfo,
1005, asked of each controller as it connects and after each change), or to any other: followers
pass them on. Reads go to the nearest follower. One that answers 2007 or not at all is put aside for
``ASIDE_S``, and the same read goes to another follower or to the leader at once. So does one that
a controller of an older version does not know: while they are rolled out, others may.

Both sides show the quorum's key before anything else is said; a process that has one says nothing
to a controller that does not.

Members of a quorum come and go: each answer says where all of them are, and they are dialled there
(``core/whereabouts``). While nobody can be reached, the settings' controllers are dialled as well,
and any pod behind their headless Service is asked.

Every request ends exactly once, in an answer or an error. An error that means "nothing was sent" is
hidden by asking the next controller; after an error that means "nobody knows" the caller decides.
"""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from gantry_protocol.codes import RequestCode, ResponseCode
from gantry_protocol.command import RemotingCommand, request
from gantry_protocol.errors import (
    Busy,
    ConfigError,
    ConnectError,
    ConnectionClosed,
    GantryError,
    HeaderError,
    KeyRefused,
    RemotingError,
)
from gantry_protocol.headers.codec import from_ext
from gantry_protocol.headers.controller import GetMetadataResponseHeader
from gantry_protocol.process import log
from gantry_protocol.process.tasks import keep
from gantry_protocol.quorum_key import NO_KEY, KeyFile
from gantry_protocol.remoting.asking import Outcome
from gantry_protocol.remoting.client import RemotingClient
from gantry_protocol.remoting.key_requests import show_key
from gantry_protocol.remoting.reads import REDIRECTS, served_by_followers

from gantry_broker.control.core import order
from gantry_broker.control.core.whereabouts import Whereabouts

CONNECT_TIMEOUT_S = 1.0
RETRY_FIRST_S = 0.05
RETRY_LAST_S = 1.0
DISCOVER_EVERY_S = 1.0  # besides each connect and each "not leader"
"""A new member may lead soon, and then takes whom it has not heard of for a time-out (2.5 s) for
gone: by then it has to be connected."""
DISCOVER_TIMEOUT_S = 1.0
LOST_AFTER_S = 2.0  # without any connection
LEAVE_LOOK_S, LEAVE_LOOKS = 0.05, 60  # at one that is no member any more, and owes answers
ASIDE_S = 5.0
NEWEST_SHARE = 0.25  # of the newest round trip in the smoothed one

Done = Callable[[Outcome], None]

_log = log.get("control")


class _Peer:
    """One controller."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client: RemotingClient | None = None
        self.leads = False
        self.round_trip_s = math.inf
        self.aside_until_s = -math.inf
        self.said = ""  # why it is not spoken to, as the log has it
        self.task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self.client is not None and not self.client.closed

    def known(self, now_s: float) -> order.KnownController:
        return order.KnownController(self.leads, self.round_trip_s, now_s < self.aside_until_s)

    def took(self, round_trip_s: float) -> None:
        """One more round trip was measured."""
        known_s = self.round_trip_s if self.round_trip_s < math.inf else round_trip_s
        self.round_trip_s = known_s + NEWEST_SHARE * (round_trip_s - known_s)


class ControllerPeers:
    """Connections to all controllers.

    Args:
        addresses: ``host:port`` of each controller when this process was started.
        connected: called with an address whenever a connection is made, so that the first
            heartbeat can follow at once.
        key: shown to each controller, which shows it, too.

    Attributes:
        reads_by_leader: reads that the leader answered.
        reads_by_follower: reads that a follower answered.
        reads_moved: reads that went to another controller, since the first could not answer.
        disbelieved: connections that ended since one side did not believe the other.
    """

    def __init__(
        self, addresses: Sequence[str], connected: Callable[[], None], key: KeyFile = NO_KEY
    ) -> None:
        """Nothing is connected before ``start``."""
        self.reads_by_leader = self.reads_by_follower = self.reads_moved = 0
        self.disbelieved = 0
        self._key = key
        self._whereabouts = Whereabouts(tuple(addresses))
        self._peers = [_Peer(address) for address in addresses]
        self._connected = connected
        self._tasks: list[asyncio.Task[None]] = []
        self._leaving: set[asyncio.Task[None]] = set()
        self._started = False
        self._turn = 0

    @property
    def connections(self) -> int:
        """Controllers that are connected now."""
        return sum(peer.connected for peer in self._peers)

    @property
    def dialled(self) -> tuple[str, ...]:
        """The addresses of those that it connects to."""
        return tuple(peer.address for peer in self._peers)

    def start(self) -> None:
        """Connect to every controller, and again whenever a connection ends."""
        self._started = True
        for peer in self._peers:
            self._dial(peer)
        self._tasks.append(keep(self._discover_now_and_then(), "who-leads"))

    async def stop(self) -> None:
        """Close everything; calls that wait get ``ConnectionClosed``."""
        self._started = False
        dialling = [peer.task for peer in self._peers if peer.task is not None]
        tasks, self._tasks = [*self._tasks, *dialling, *self._leaving], []
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        for peer in self._peers:
            if peer.client is not None:
                peer.client.close()

    def ask(
        self, command: RemotingCommand, done: Done, timeout_s: float, held_s: float = 0.0
    ) -> None:
        """Send a change to the leader, a read to the nearest follower; ``done`` comes once.

        It may come at once. A read that one controller cannot answer goes to the next within
        ``timeout_s``; a change is never sent twice. A controller that was asked to keep its answer
        back is not silent before ``held_s`` have passed; the caller asks the next one then.
        """
        self._turn += 1
        now_s = asyncio.get_running_loop().time()
        peers = [peer for peer in self._peers if peer.connected]
        known = [peer.known(now_s) for peer in peers]
        if served_by_followers(command.code):
            command.ext = {**(command.ext or {}), REDIRECTS: "true"}
            turns = order.for_reads(known, self._turn)
            asked = [peers[at] for at in turns]
            self._read(command, done, asked, now_s + timeout_s, held_s)
            return
        for at in order.for_writes(known, self._turn):
            if self._send(peers[at], command, partial(self._answered, peers[at], done), timeout_s):
                return
        self._nobody(done)

    def _read(
        self,
        command: RemotingCommand,
        done: Done,
        peers: list[_Peer],
        until_s: float,
        held_s: float,
    ) -> None:
        """Ask the first of ``peers``; the others if it cannot answer."""
        loop = asyncio.get_running_loop()
        for at, peer in enumerate(peers):
            others = [other for other in peers[at + 1 :] if other.connected]
            left_s = until_s - loop.time()
            # Whoever is silent must leave time for the next one to answer.
            wait_s = held_s + (left_s / 2 if others else left_s)

            def came(outcome: Outcome, peer: _Peer = peer, others: list[_Peer] = others) -> None:
                is_older = _code(outcome) == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                if is_older and others and loop.time() < until_s:
                    self._read(command, done, others, until_s, held_s)
                    return
                if not _cannot_answer(outcome):
                    self._count_read(peer)
                    done(outcome)
                    return
                peer.aside_until_s = loop.time() + ASIDE_S
                self._doubt(peer)
                if others and loop.time() < until_s:
                    self.reads_moved += 1
                    self._read(command, done, others, until_s, held_s)
                else:
                    done(outcome)

            if self._send(peer, command, came, wait_s):
                return
        self._nobody(done)

    def _send(self, peer: _Peer, command: RemotingCommand, done: Done, timeout_s: float) -> bool:
        """Whether the request is on its way; if not, nobody is called back."""
        if peer.client is None:
            return False
        try:
            peer.client.call_nowait(command, done, timeout_s)
        except (Busy, ConnectionClosed):
            return False
        return True

    def _nobody(self, done: Done) -> None:
        done(ConnectError("No controller is connected.", refused=False))

    def _count_read(self, peer: _Peer) -> None:
        if peer.leads:
            self.reads_by_leader += 1
        else:
            self.reads_by_follower += 1

    def ask_each(self, make: Callable[[], RemotingCommand], done: Done, timeout_s: float) -> int:
        """Send to every controller that owes no answer; returns to how many.

        ``done`` comes once for each of them.
        """
        asked = 0
        for peer in self._peers:
            client = peer.client
            if client is not None and peer.connected and not client.pending_calls:
                with suppress(Busy, ConnectionClosed):
                    client.call_nowait(make(), partial(self._answered, peer, done), timeout_s)
                    asked += 1
        return asked

    def tell_all(self, make: Callable[[], RemotingCommand]) -> int:
        """Send a oneway request to every controller; returns how many took it."""
        told = 0
        for peer in self._peers:
            if peer.client is not None and peer.connected:
                with suppress(RemotingError):
                    peer.client.oneway(make())
                    told += 1
        return told

    def _answered(self, peer: _Peer, done: Done, outcome: Outcome) -> None:
        if _cannot_answer(outcome):
            self._doubt(peer)
        done(outcome)

    def _doubt(self, peer: _Peer) -> None:
        """It may lead no more, and the leader may be another one."""
        peer.leads = False
        self._discover()

    # ---- who leads, and who takes part

    async def _discover_now_and_then(self) -> None:
        loop = asyncio.get_running_loop()
        connected_s = loop.time()
        while True:
            await asyncio.sleep(DISCOVER_EVERY_S)
            self._discover()
            if self.connections:
                connected_s = loop.time()
            elif loop.time() - connected_s >= LOST_AFTER_S:
                self._settle(self._whereabouts.lost())
                for address in self._whereabouts.services():
                    await self._ask_once(address)

    def _discover(self) -> None:
        for peer in self._peers:
            self._ask_who_leads(peer)

    def _ask_who_leads(self, peer: _Peer) -> None:
        client = peer.client
        if client is None or client.closed:
            return

        loop = asyncio.get_running_loop()
        asked_s = loop.time()

        def learned(outcome: Outcome) -> None:
            peer.leads = False
            if isinstance(outcome, RemotingCommand) and outcome.code == ResponseCode.SUCCESS:
                peer.took(loop.time() - asked_s)
                peer.leads = self._learn(outcome)

        with suppress(Busy, ConnectionClosed):
            command = request(RequestCode.CONTROLLER_GET_METADATA_INFO)
            client.call_nowait(command, learned, DISCOVER_TIMEOUT_S)

    def _learn(self, answer: RemotingCommand) -> bool:
        """Take in who takes part; whether who says so leads."""
        try:
            header = from_ext(GetMetadataResponseHeader, answer.ext)
        except HeaderError:
            return False
        self._settle(self._whereabouts.heard(header.peers, leads=header.is_leader))
        return header.is_leader

    async def _ask_once(self, address: str) -> None:
        """Ask whoever is behind an address that may be any controller's; it is not kept."""
        client = RemotingClient(member_tls=self._key.tls)
        try:
            await client.connect(address, CONNECT_TIMEOUT_S)
            await show_key(client, self._key, CONNECT_TIMEOUT_S)
            command = request(RequestCode.CONTROLLER_GET_METADATA_INFO)
            self._learn(await client.call(command, DISCOVER_TIMEOUT_S))
        except (RemotingError, ConfigError) as error:
            _log.debug("controllers cannot be asked", address=address, reason=error)
        finally:
            client.close()

    # ---- connections

    def _settle(self, now: Whereabouts) -> None:
        """Dial who has come, and leave who has gone."""
        before, self._whereabouts = self._whereabouts, now
        if set(now.dialled) == set(before.dialled) or not self._started:
            return
        for peer in [peer for peer in self._peers if peer.address not in now.dialled]:
            self._peers.remove(peer)
            self._leave(peer)
        for address in now.dialled:
            if address not in self.dialled:
                self._peers.append(peer := _Peer(address))
                self._dial(peer)
        _log.info("controllers changed", addresses=list(self.dialled))

    def _dial(self, peer: _Peer) -> None:
        peer.task = keep(self._keep(peer), f"controller-{peer.address}")

    def _leave(self, peer: _Peer) -> None:
        """Ask it nothing more, and hang up when it has answered."""
        assert peer.task is not None, "it was dialled"
        peer.task.cancel()
        if peer.client is not None and peer.connected:
            task = keep(_hang_up(peer.client), f"leave-{peer.address}")
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)

    async def _keep(self, peer: _Peer) -> None:
        """Connect, wait for the end, connect again; the wait grows and has jitter."""
        wait_s = RETRY_FIRST_S
        while True:
            ended = asyncio.Event()
            client = RemotingClient(on_close=partial(_set, ended), member_tls=self._key.tls)
            try:
                await client.connect(peer.address, CONNECT_TIMEOUT_S)
                await show_key(client, self._key, CONNECT_TIMEOUT_S)
            except asyncio.CancelledError:
                client.close()  # nobody knows of it yet
                raise
            except (RemotingError, ConfigError) as error:
                self._not_connected(peer, error)
            else:
                wait_s, peer.said = RETRY_FIRST_S, ""
                peer.client, peer.leads = client, False
                peer.round_trip_s, peer.aside_until_s = math.inf, -math.inf
                self._ask_who_leads(peer)
                self._connected()
                await ended.wait()
                peer.client, peer.leads = None, False
                self._discover()
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))  # noqa: S311 - jitter
            wait_s = min(wait_s * 2, RETRY_LAST_S)

    def _not_connected(self, peer: _Peer, error: GantryError) -> None:
        """Say why; what a person must mend is said loud, and once."""
        if not isinstance(error, KeyRefused | ConfigError):
            _log.debug("controller cannot be reached", address=peer.address, reason=error)
            return
        self.disbelieved += 1
        if peer.said != str(error):
            peer.said = str(error)
            _log.error("controller cannot be spoken to", address=peer.address, reason=error)


def _cannot_answer(outcome: Outcome) -> bool:
    """Whether this controller neither serves the request nor knows who does."""
    if isinstance(outcome, RemotingCommand):
        return outcome.code == ResponseCode.CONTROLLER_NOT_LEADER
    return isinstance(outcome, RemotingError)


def _code(outcome: Outcome) -> int | None:
    return outcome.code if isinstance(outcome, RemotingCommand) else None


async def _hang_up(client: RemotingClient) -> None:
    """Close a connection once nothing is owed on it, or time is up."""
    try:
        for _ in range(LEAVE_LOOKS):
            if client.closed or not client.pending_calls:
                break
            await asyncio.sleep(LEAVE_LOOK_S)
    finally:
        client.close()


def _set(event: asyncio.Event, _client: RemotingClient) -> None:
    event.set()
