"""Listening sockets, and one sentence when the address is taken.

Sockets are bound here rather than by the event loop, so that every server of every component
reports a port in use the same way and with exit code 75.
"""

import asyncio
import errno
import socket

from gantry_protocol.errors import GantryError, PortInUseError
from gantry_protocol.hosts import join_address

BACKLOG = 1024  # upstream's serverSocketBacklog
_ARRIVAL_TURNS = 4  # of the event loop, from an accepted socket to a connection that was ended


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
