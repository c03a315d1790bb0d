"""TCP between simulated processes, as Linux does it, and asyncio's transports on top.

The kernel's half (``Endpoint``) belongs to a machine and works while its process is frozen: it
accepts connections, acknowledges until its buffer is full, and closes what a dead process had open.
A connection keeps order and loses nothing, or is reset. While a link is blocked segments wait and
are sent again with the back-off of a retransmission, so a connection may stay silent long after the
link carries everything again; nobody is told of a machine that lost its power until something is
sent to its next life (half-open).

A connection attempt is refused only by a machine that is up and has no listener there; a machine
without power, or behind a blocked link, never answers.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from sim.kernel.network import NetworkOptions
from sim.kernel.world import MS, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from sim.kernel.world import World
    from sim.product.bucket import Bucket
    from sim.product.machines import Machine, Process

WINDOW_BYTES = 256 * 1024  # sent and not yet read by the other process
SEGMENT_BYTES = 64 * 1024
HIGH_WATER_BYTES = 64 * 1024
RETRANSMIT_US = 200 * MS
RETRANSMIT_MAX_US = 30 * SECOND
SYN_TRIES = 6  # 1 s, 2 s, 4 s … as Linux: 63 s, then 64 s more
LOOPBACK_US = 15


class Network:
    """Every machine by its address, and which links carry nothing.

    Attributes:
        options: latencies; may be changed while the world runs (loss and repetition are TCP's).
        blocked: ordered pairs (source, target) of addresses that carry nothing at present.
        names: what a name server would say: host name to address.
        services: addresses of no machine, and who finds the places behind each.
        bucket: the object store.
    """

    bucket: Bucket

    def __init__(self, world: World, options: NetworkOptions) -> None:
        self.world = world
        self.options = options
        self.blocked: set[tuple[str, str]] = set()  # membership tests only, never iterated
        self.machines: dict[str, Machine] = {}
        self.names: dict[str, str] = {}
        self.services: dict[str, Callable[[], list[tuple[str, int]]]] = {}
        self.rng: Random = world.stream("network")

    def latency_us(self, source: str, target: str) -> int:
        """How long the next segment takes."""
        if source == target:
            return LOOPBACK_US + self.rng._randbelow(10)
        options = self.options
        if options.spike_rate and self.rng.random() < options.spike_rate:
            return self.rng.randint(options.latency_us[0], options.spike_us)
        low, high = options.latency_us
        return low + self.rng._randbelow(high - low + 1)

    def behind(self, host: str, port: int) -> tuple[str, int]:
        """Where a connection to an address goes: behind a Service to one of several places."""
        find = self.services.get(host)
        return (host, port) if find is None else self.rng.choice(find())

    def carries(self, source: str, target: str) -> bool:
        """Whether the link does, now."""
        return (source, target) not in self.blocked

    def route(self, host: str, port: int) -> tuple[str, int]:
        """Where a connection to an address leads, as the kernel of whoever connects has it."""
        return host, port

    def split(self, groups: list[list[str]]) -> None:
        """Carry nothing between machines of different groups, either way."""
        for here in groups:
            for there in groups:
                if here is not there:
                    self.blocked.update((a, b) for a in here for b in there)

    def isolate(self, address: str) -> None:
        """Cut one machine off from all others."""
        self.split([[address], [other for other in self.machines if other != address]])

    def heal(self) -> None:
        """Carry everything again."""
        self.blocked.clear()


class ListenSocket:
    """A bound socket that listens, as ``listening.bind`` makes one."""

    def __init__(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM) -> None:
        from sim.product.machines import current

        self.family = family
        self.process = current()
        self.name = ("", 0)
        self.listener: Listener | None = None

    def setsockopt(self, *_: Any) -> None:
        """No option changes anything here."""

    def setblocking(self, _: bool) -> None:
        """It never blocks."""

    def bind(self, name: tuple[str, int]) -> None:
        """Take the port, unless somebody has it."""
        host, port = name
        machine = self.process.machine
        port = port or machine.free_port()
        taken = machine.listeners.get(port)
        if taken is not None:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        self.name = (machine.address if host in ("", "0.0.0.0") else host, port)

    def listen(self, _: int) -> None:
        """Connections are accepted from ``create_server`` on."""

    def getsockname(self) -> tuple[str, int]:
        return self.name

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        if self.listener is not None:
            self.listener.close()


class SocketModule:
    """What ``gantry_protocol.process.listening`` uses of ``socket``."""

    AF_INET = socket.AF_INET
    AF_INET6 = socket.AF_INET6
    SOCK_STREAM = socket.SOCK_STREAM
    SOL_SOCKET = socket.SOL_SOCKET
    SO_REUSEADDR = socket.SO_REUSEADDR
    socket = ListenSocket


class Listener:
    """A port that a process serves."""

    def __init__(
        self, process: Process, listening: ListenSocket, factory: Callable[[], Any]
    ) -> None:
        self.process = process
        self.factory = factory
        self.port = listening.name[1]
        listening.listener = self
        process.machine.listeners[self.port] = self
        process.listeners.append(self)

    def accept(self, endpoint: Endpoint) -> None:
        """The kernel has completed a handshake; the process hears of it when it runs."""
        self.process.loop.call_soon(self._accepted, endpoint)

    def _accepted(self, endpoint: Endpoint) -> None:
        if self.process.machine.listeners.get(self.port) is not self or endpoint.is_gone:
            endpoint.abort()
            return
        endpoint.hand_over(self.factory)

    def close(self) -> None:
        """Refuse connections from now on."""
        if self.process.machine.listeners.get(self.port) is self:
            del self.process.machine.listeners[self.port]
        if self in self.process.listeners:
            self.process.listeners.remove(self)


class SimServer:
    """As ``asyncio.Server``."""

    def __init__(self, listener: Listener, listening: ListenSocket) -> None:
        self._listener = listener
        self.sockets = [listening]

    def close(self) -> None:
        self._listener.close()

    def close_clients(self) -> None:
        """Connections are their owners'."""

    def is_serving(self) -> bool:
        return True

    async def wait_closed(self) -> None:
        """It is closed at once."""


async def connect(process: Process, host: str, port: int) -> Endpoint:
    """The kernel's handshake.

    Raises:
        ConnectionRefusedError: the machine is up, and nobody listens there.
        OSError: ETIMEDOUT after two minutes of silence, EHOSTUNREACH for an unknown address.
    """
    machine, network = process.machine, process.machine.network
    host, port = network.route(host, port)
    host = machine.address if host in ("127.0.0.1", "localhost") else host
    host, port = network.behind(host, port)
    target = network.machines.get(host)
    if target is None:
        await asyncio.sleep(3)
        raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
    here, wait_s = machine.address, 1.0
    for _ in range(SYN_TRIES):
        if target.is_up and network.carries(here, host):
            await _pass(network, here, host)
            if target.is_up and network.carries(host, here):
                listener = target.listeners.get(port)
                if listener is None:
                    await _pass(network, host, here)
                    raise ConnectionRefusedError(
                        errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)
                    )
                near = Endpoint(process, (here, machine.free_port()), (host, port))
                far = Endpoint(listener.process, (host, port), near.local)
                near.join(far)
                listener.accept(far)
                try:
                    await _pass(network, host, here)
                except BaseException:
                    near.abort()
                    raise
                return near
        await asyncio.sleep(wait_s)
        wait_s *= 2
    raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


async def _pass(network: Network, source: str, target: str) -> None:
    await asyncio.sleep(network.latency_us(source, target) / 1e6)


class Endpoint:
    """The kernel's half of one side of a connection.

    Attributes:
        local, peer: their names.
        is_gone: closed, reset, or of a process that is gone.
        transport: asyncio's half, once the process has it.
    """

    def __init__(self, process: Process, local: tuple[str, int], peer: tuple[str, int]) -> None:
        self.process = process
        self.machine = process.machine
        self.local = local
        self.peer = peer
        self.is_gone = False
        self.transport: SimTransport | None = None
        self._life = process.machine.life
        self._other: Endpoint
        self._out: deque[bytes | None] = deque()  # None: the end (FIN)
        self._out_bytes = 0
        self._flight: deque[bytes | None] = deque()  # sent, and not yet there
        self._attempt = 0  # arrivals of earlier ones count no more
        self._unread = 0  # bytes in flight, or there and not yet read
        self._free_us = 0
        self._retry_us = 0
        self._is_retrying = False
        self._in: deque[bytes | None] = deque()
        process.endpoints[self] = None

    def join(self, other: Endpoint) -> None:
        """They are the two sides of one connection."""
        self._other = other
        other._other = self

    def hand_over(self, factory: Callable[[], Any]) -> tuple[SimTransport, Any]:
        """Give the connection to the process: a transport for a protocol."""
        protocol = factory()
        self.transport = SimTransport(self, protocol)
        protocol.connection_made(self.transport)
        self.deliver()
        return self.transport, protocol

    # ---- out

    @property
    def unsent_bytes(self) -> int:
        """What the transport still holds."""
        return self._out_bytes

    def send(self, data: bytes | None) -> None:
        """Send bytes, or the end."""
        if data is None:
            self._out.append(None)
        elif len(data) <= SEGMENT_BYTES:
            self._out.append(bytes(data))
            self._out_bytes += len(data)
        else:
            view = memoryview(data)
            for start in range(0, len(view), SEGMENT_BYTES):
                self._out.append(bytes(view[start : start + SEGMENT_BYTES]))
            self._out_bytes += len(view)
        self._pump()

    def _pump(self) -> None:
        """Send as much as the other side's buffer takes."""
        network, world = self.machine.network, self.machine.world
        here, there = self.local[0], self.peer[0]
        while self._out and not self._is_retrying and self._unread < WINDOW_BYTES:
            if not network.carries(here, there) or not self._other.machine.is_up:
                self._retry_later()
                break
            data = self._out.popleft()
            if data is not None:
                self._out_bytes -= len(data)
                self._unread += len(data)
            self._flight.append(data)
            latency_us = network.latency_us(here, there)
            self._free_us = max(self._free_us, world.now_us + latency_us)
            world.at(self._free_us, self._arrive, self._attempt)
        if self.transport is not None:
            self.transport.drained()

    def _retry_later(self) -> None:
        self._is_retrying = True
        self._retry_us = min(max(RETRANSMIT_US, 2 * self._retry_us), RETRANSMIT_MAX_US)
        self.machine.world.after(self._retry_us, self._retry)

    def _retry(self) -> None:
        self._is_retrying = False
        if self._is_of_this_life:
            self._pump()

    @property
    def _is_of_this_life(self) -> bool:
        """Whether the machine still is the one that had this connection open."""
        return self.machine.is_up and self.machine.life == self._life

    def _arrive(self, attempt: int) -> None:
        """The next segment reaches the other machine, unless the link was cut meanwhile."""
        network, other = self.machine.network, self._other
        if attempt != self._attempt or not self._is_of_this_life:
            return
        if not network.carries(self.local[0], self.peer[0]) or not other.machine.is_up:
            self._send_again()
            return
        data = self._flight.popleft()
        self._retry_us = 0
        if other.is_gone or not other._is_of_this_life:
            if data is not None or not other._is_of_this_life:
                self._tell_back(self.reset)
            return
        other._in.append(data)
        other.deliver()

    def _send_again(self) -> None:
        """Everything under way is lost: it goes again, in order, later."""
        self._attempt += 1
        lost = sum(len(data) for data in self._flight if data is not None)
        self._out_bytes += lost
        self._unread -= lost
        self._out.extendleft(reversed(self._flight))
        self._flight.clear()
        if not self._is_retrying:
            self._retry_later()

    def _tell_back(self, what: Callable[[], None]) -> None:
        """Something travels the other way: a reset."""
        network = self.machine.network
        if network.carries(self.peer[0], self.local[0]):
            latency_us = network.latency_us(self.peer[0], self.local[0])
            self.machine.world.after(latency_us, what)

    # ---- in

    def deliver(self) -> None:
        """Give the process what has arrived, if it reads."""
        transport = self.transport
        if transport is None or not self._in or self.is_gone:
            return
        if not transport.is_scheduled:
            transport.is_scheduled = True
            self.process.loop.call_soon(transport.read_ready)

    def take(self) -> bytes | None:
        """The next segments together, as one read takes them; None: the end."""
        first = self._in.popleft()
        if first is None:
            return None
        parts, size = [first], len(first)
        while self._in and self._in[0] is not None and size < SEGMENT_BYTES * 4:
            part = self._in.popleft()
            assert part is not None
            parts.append(part)
            size += len(part)
        self._other.window(size)
        return b"".join(parts) if len(parts) > 1 else first

    def window(self, size: int) -> None:
        """The other process has read so much."""
        self._unread -= size
        if self._out:
            self._pump()

    # ---- ends

    def close(self) -> None:
        """The process has closed it: what was sent still goes, then the end."""
        if not self.is_gone:
            self._leave()
            if self._in:  # unread data: Linux sends a reset
                self._send_reset()
            else:
                self.send(None)

    def abort(self) -> None:
        """Reset the connection."""
        if not self.is_gone:
            self._leave()
            self._out.clear()
            self._out_bytes = 0
            self._send_reset()

    def process_gone(self, *, silently: bool) -> None:
        """Its process has ended; the kernel closes, or went too."""
        if self.is_gone:
            return
        self._leave()
        if not silently:
            if self._in or self.process.rng.random() < 0.5:
                self._out.clear()
                self._out_bytes = 0
                self._send_reset()
            else:
                self.send(None)

    def _send_reset(self) -> None:
        network = self.machine.network
        if network.carries(self.local[0], self.peer[0]):
            latency_us = network.latency_us(self.local[0], self.peer[0])
            self.machine.world.after(latency_us, self._other.reset)

    def reset(self) -> None:
        """A reset has arrived."""
        if self.is_gone or not self._is_of_this_life:
            return
        self._leave()
        if self.transport is not None:
            error = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            self.process.loop.call_soon(self.transport.lost, error)

    def _leave(self) -> None:
        self.is_gone = True
        self.process.endpoints.pop(self, None)


class _Socket:
    """What ``get_extra_info("socket")`` gives."""

    def setsockopt(self, *_: Any) -> None:
        """No option changes anything here."""

    def getsockname(self) -> tuple[str, int]:
        return ("", 0)

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP


class SimTransport(asyncio.Transport):
    """asyncio's half: buffers, water marks, and a protocol that is called from its loop only."""

    def __init__(self, endpoint: Endpoint, protocol: Any) -> None:
        super().__init__()
        self._endpoint = endpoint
        self._protocol = protocol
        self._loop = endpoint.process.loop
        self._is_closing = False
        self._is_lost = False
        self._reads = True
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4
        self._is_full = False
        self.is_scheduled = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self._endpoint.peer
        if name == "sockname":
            return self._endpoint.local
        if name == "socket":
            return _Socket()
        return default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return cast("asyncio.BaseProtocol", self._protocol)

    def is_closing(self) -> bool:
        return self._is_closing

    # ---- reading

    def is_reading(self) -> bool:
        return self._reads and not self._is_closing

    def pause_reading(self) -> None:
        self._reads = False

    def resume_reading(self) -> None:
        self._reads = True
        self._endpoint.deliver()

    def read_ready(self) -> None:
        """One read, as the selector's: at most 256 KiB, then the others' turn."""
        self.is_scheduled = False
        endpoint = self._endpoint
        if not self._reads or self._is_closing or endpoint.is_gone or not endpoint._in:
            return
        data = endpoint.take()
        if data is None:
            if not self._protocol.eof_received():
                self.close()
            return
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            asyncio.protocols._feed_data_to_buffered_proto(self._protocol, data)  # type: ignore[attr-defined]
        else:
            self._protocol.data_received(data)
        endpoint.deliver()

    # ---- writing

    def write(self, data: Any) -> None:
        if self._is_closing or self._endpoint.is_gone or not data:
            return
        self._endpoint.send(data)
        if not self._is_full and self._endpoint.unsent_bytes > self._high:
            self._is_full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def drained(self) -> None:
        """The kernel has taken something (called by the endpoint)."""
        if self._is_full and self._endpoint.unsent_bytes <= self._low:
            self._is_full = False
            self._loop.call_soon(self._tell_drained)
        if self._is_closing and not self._endpoint.unsent_bytes:
            self._finish()

    def _tell_drained(self) -> None:
        if not self._is_lost:
            self._protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return self._endpoint.unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._endpoint.send(None)

    # ---- ends

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._endpoint.unsent_bytes:
            self._finish()

    def _finish(self) -> None:
        if not self._endpoint.is_gone:
            self._endpoint.close()
            self._loop.call_soon(self.lost, None)

    def abort(self) -> None:
        if self._is_lost:
            return
        self._is_closing = True
        if not self._endpoint.is_gone:
            self._endpoint.abort()
            self._loop.call_soon(self.lost, None)

    def lost(self, error: Exception | None) -> None:
        """The connection has ended; told once."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._protocol.connection_lost(error)
