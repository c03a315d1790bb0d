"""TLS of the load generator, and the certificate of the brokers under it.

TLS is spoken in memory, beside a socket that stays plain: one system call reads what came and one
writes what is to go, as without TLS, and a session ticket that comes by itself blocks nobody. Rule
protected: the server's certificate is verified, its authority and its name, and nothing older than
TLS 1.3 is spoken.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from gantry_protocol.tls.contexts import client_context

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping
    from pathlib import Path

SERVER_NAME = "gantry-bench"
VALID_FOR = timedelta(days=1)
CHUNK_BYTES = 64 * 1024


class Trust(NamedTuple):
    """The authority and the name that a client believes.

    Attributes:
        context: with the authority.
        server_name: that certificates must be for.
    """

    context: ssl.SSLContext
    server_name: str


def made(directory: Path) -> tuple[Mapping[str, str], Trust]:
    """A certificate of an authority of its own: a broker's variables, and what believes it.

    Keys are of an elliptic curve (P-256), as the documentation has them.

    Args:
        directory: for the files; it exists.
    """
    import trustme  # of the development environment, as for tests

    authority = trustme.CA(organization_name=SERVER_NAME)
    ca, cert, key = (directory / name for name in ("ca.crt", "tls.crt", "tls.key"))
    authority.cert_pem.write_to_path(ca)
    issued = authority.issue_cert(SERVER_NAME, not_after=datetime.now(UTC) + VALID_FOR)
    issued.cert_chain_pems[0].write_to_path(cert)
    issued.private_key_pem.write_to_path(key)
    variables = {"GANTRY_TLS_CERT_FILE": str(cert), "GANTRY_TLS_KEY_FILE": str(key)}
    return variables, trust(ca, SERVER_NAME)


def trust(ca: Path, server_name: str) -> Trust:
    """Belief in the certificates of an authority that are for this name.

    Raises:
        ConfigError: the file holds no certificate.
    """
    context = client_context(ca, None, None, server_name)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return Trust(context, server_name)


class TlsSocket:
    """A connected socket on which TLS is spoken; it is closed with this one.

    Attributes:
        has_more: ``recv_into`` would have something without the socket becoming readable.
    """

    __slots__ = ("_incoming", "_outgoing", "_plain", "_tls", "has_more")

    def __init__(self, plain: socket.socket, trusted: Trust) -> None:
        """Shake hands, within the socket's time-out.

        Raises:
            OSError: the server speaks no TLS, or shows a certificate that is not believed.
        """
        self.has_more = False
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trusted.context.wrap_bio(
            self._incoming, self._outgoing, server_hostname=trusted.server_name
        )
        while not self._is_shaken():
            data = plain.recv(CHUNK_BYTES)
            if not data:
                raise ConnectionResetError("it closed the connection amid the handshake")
            self._incoming.write(data)

    def recv_into(self, view: memoryview) -> int:
        """Read what came, at most once from the socket; 0 when the connection has ended.

        Raises:
            BlockingIOError: what came holds nothing for the caller.
            OSError: the connection broke.
        """
        if not self.has_more:
            data = self._plain.recv(CHUNK_BYTES)
            if not data:
                return 0
            self._incoming.write(data)
        filled = 0
        self.has_more = False
        try:
            while filled < len(view):
                filled += self._tls.read(len(view) - filled, view[filled:])  # type: ignore[operator]
            self.has_more = True
        except ssl.SSLWantReadError:
            if not filled:
                raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            return filled
        return filled

    def sendall(self, data: bytes | bytearray) -> None:
        """Write all of it."""
        self._tls.write(data)
        self._flush()

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._plain.fileno()

    def close(self) -> None:
        """End the connection."""
        self._plain.close()

    def _is_shaken(self) -> bool:
        """Go on with the handshake; whether it is done."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()  # also an alert, which tells the server why
        return True

    def _flush(self) -> None:
        self._plain.sendall(self._outgoing.read())
