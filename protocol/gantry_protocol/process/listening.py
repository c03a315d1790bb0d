"""Listening sockets, and one sentence when the address is taken.

Sockets are bound here rather than by the event loop, so that every server of every component
reports a port in use the same way and with exit code 75.
"""

import asyncio
import errno
import ipaddress
import socket

from gantry_protocol.errors import GantryError, PortInUseError
from gantry_protocol.hosts import join_address
from gantry_protocol.process import log

BACKLOG = 1024  # upstream's serverSocketBacklog
LOOPBACK = "127.0.0.1"
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 -- it is compared
_ARRIVAL_TURNS = 4  # of the event loop, from an accepted socket to a connection that was ended

_log = log.get("listening")


def bind(host: str, port: int, *, purpose: str) -> socket.socket:
    """A bound, non-blocking TCP socket for ``loop.create_server(sock=…)``; port 0 picks a free one.

    Args:
        host: an IP address (or ``localhost``).
        port: 0 … 65535.
        purpose: what is to be served there, as the error sentence names it (``remoting``).

    Raises:
        PortInUseError: somebody listens there.
        GantryError: the address is not this machine's, or not allowed.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise _explain(error, host, port, purpose) from error
    return listener


def bind_inside(host: str, port: int, *, purpose: str) -> socket.socket | None:
    """The same port of the loopback address, where ``host`` is another single address.

    The API server forwards a port of a pod to the pod's loopback address, and processes in pods
    listen at the pod's. None also where somebody has it: pods in the node's network share it.
    """
    if host in _EVERYWHERE or is_loopback(host):
        return None
    try:
        return bind(LOOPBACK, port, purpose=purpose)
    except GantryError as error:
        _log.info("not served on loopback, so its port cannot be forwarded", error=error)
        return None


def is_loopback(address: str) -> bool:
    """Whether an address is this machine's own."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


async def stop_listening(server: asyncio.Server) -> None:
    """Accept nobody any more; whoever was accepted has arrived on return, and can be ended.

    A server of asyncio that is closed while the loop still makes the connection of a socket it has
    accepted forgets that socket, open (https://github.com/python/cpython/issues/109564).
    """
    loop = asyncio.get_running_loop()
    for listening in server.sockets:
        loop.remove_reader(listening.fileno())  # uvloop has none there, and no such fault
    for _ in range(_ARRIVAL_TURNS):
        await asyncio.sleep(0)
    server.close()


def _explain(error: OSError, host: str, port: int, purpose: str) -> GantryError:
    address = join_address(host, port)
    if error.errno == errno.EADDRINUSE:
        return PortInUseError(
            f"Port {port} on {host} is in use, so {purpose} cannot be served at {address}; "
            f"stop the other process or choose another port."
        )
    return GantryError(f"Cannot listen for {purpose} at {address}: {error.strerror or error}.")
