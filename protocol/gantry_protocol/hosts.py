"""Names to addresses, for every outgoing connection of every component.

A cluster without DNS (``gantry local``) hands its processes a JSON file ``{"name": "127.77.0.1",
...}`` in the variable ``GANTRY_HOSTS``; a name found there wins over DNS. The file is read again
when its modification time, size or inode changes, so pods may come and go. DNS is asked each time,
through the event loop, never in it: a pod that moves must be found at once. What it answered last
serves only while it does not answer (``lookups``).
"""

import ipaddress
import json
import os
from pathlib import Path

from gantry_protocol.errors import ResolveError
from gantry_protocol.lookups import lookups

HOSTS_VARIABLE = "GANTRY_HOSTS"

_FileStamp = tuple[int, int, int]


class HostsFile:
    """The name table of one JSON file, re-read when the file changes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: _FileStamp | None = None
        self._table: dict[str, str] = {}

    def lookup(self, host: str) -> str | None:
        """The address of ``host``, or None if the file (or the name in it) is absent.

        Raises:
            ResolveError: the file is there but is no JSON object of strings.
        """
        try:
            status = self._path.stat()
        except FileNotFoundError:
            self._stamp, self._table = None, {}
            return None
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp != self._stamp:
            self._table = self._read()
            self._stamp = stamp
        return self._table.get(host.rstrip(".").lower())

    def _read(self) -> dict[str, str]:
        try:
            table = json.loads(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ResolveError(
                f"{self._path} (named by {HOSTS_VARIABLE}) is not JSON: {error}."
            ) from error
        if not isinstance(table, dict) or not all(isinstance(ip, str) for ip in table.values()):
            raise ResolveError(
                f"{self._path} (named by {HOSTS_VARIABLE}) must map host names to addresses."
            )
        return {name.rstrip(".").lower(): ip for name, ip in table.items()}


_files: dict[str, HostsFile] = {}


def from_hosts_file(host: str) -> str | None:
    """The address that the file named by ``GANTRY_HOSTS`` gives for ``host``, or None."""
    path = os.environ.get(HOSTS_VARIABLE)
    if not path:
        return None
    file = _files.get(path)
    if file is None:
        file = _files[path] = HostsFile(Path(path))
    return file.lookup(host)


async def resolve(host: str) -> str:
    """The IP address to connect to for ``host``; an address stands for itself.

    Raises:
        ResolveError: neither the hosts file nor DNS knows the name, or DNS never answered.
    """
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    known = from_hosts_file(host)
    if known is not None:
        return known
    try:
        return await lookups().find(host)
    except (OSError, UnicodeError) as error:  # UnicodeError: a label no IDNA codec accepts
        raise ResolveError(f"The host name {host!r} has no address: {error}.") from error


def split_address(address: str, default_port: int | None = None) -> tuple[str, int]:
    """``host:port``, ``[v6]:port`` or a bare host (with ``default_port``) taken apart.

    Raises:
        ResolveError: no host, no port where one is needed, or a port outside 1..65535.
    """
    host, separator, port_text = address.strip().rpartition(":")
    bare_v6 = ":" in host and not host.startswith("[")
    if not separator or bare_v6 or port_text.endswith("]"):
        host, port_text = address.strip(), "" if default_port is None else str(default_port)
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise ResolveError(f"The address {address!r} has no host; write host:port.")
    if not (port_text.isascii() and port_text.isdigit() and 1 <= int(port_text[:6]) <= 65535):
        raise ResolveError(
            f"The address {address!r} needs a port between 1 and 65535; write host:port."
        )
    return host, int(port_text)


def join_address(host: str, port: int) -> str:
    """``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(name: object) -> str:
    """``host:port`` of what a socket calls its own or its peer's name."""
    if isinstance(name, tuple) and len(name) >= 2:
        return join_address(str(name[0]), int(name[1]))
    return "unknown"
