"""Certificates and TLS contexts, made from files, and made anew when those change.

Files are looked at when a connection comes, and at most once in ``LOOK_S``; Kubernetes swaps the
files of a Secret by a symbolic link, so what a link leads to is compared. What cannot be used (a
file that is missing, a key that is another certificate's) leaves what was made last in use, is
logged once for each change, and counted. Connections that are there keep what they were made with.

No text here holds a byte of a key: errors name files.
"""

import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from gantry_protocol.errors import ConfigError
from gantry_protocol.process import log
from gantry_protocol.tls.pairs import MISMATCHES, because
from gantry_protocol.tls.validity import not_after

LOOK_S = 1.0
FILE_BYTES_MAX = 1024 * 1024

_log = log.get("tls")

Stamp = tuple[tuple[int, int, int] | None, ...]


MadeT = TypeVar("MadeT")


class Followed(Generic[MadeT]):
    """Something and the files that it is made from.

    Args:
        files: which it is made from.
        make: makes it; raises ``ConfigError`` where the files are no good.
        clock: seconds, of which differences count.

    Attributes:
        failures: changes of the files that could not be used.
    """

    def __init__(
        self,
        files: Sequence[Path],
        make: Callable[[], MadeT],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is read before ``load`` or ``newest``."""
        self.failures = 0
        self._files = tuple(files)
        self._make = make
        self._clock = clock
        self._made: MadeT | None = None
        self._stamp: Stamp = ()
        self._looked_s = 0.0

    @property
    def is_made(self) -> bool:
        """Whether the files have been good once."""
        return self._made is not None

    def load(self) -> MadeT:
        """Read the files now.

        Raises:
            ConfigError: they are no good; one sentence that names the file.
        """
        self._looked_s = self._clock()
        self._stamp = _stamp(self._files)  # before reading: what changes meanwhile is read again
        self._made = self._make()
        return self._made

    def newest(self) -> MadeT:
        """The newest one that could be made.

        Raises:
            ConfigError: there never was one.
        """
        if self._made is None:
            return self.load()
        if self._clock() - self._looked_s < LOOK_S:
            return self._made
        self._looked_s = self._clock()
        if _stamp(self._files) != self._stamp:
            try:
                self.load()
            except ConfigError as error:
                self.failures += 1
                _log.warning("certificates not taken, the last good ones stay", reason=error)
            else:
                _log.info("certificates read anew", files=", ".join(map(str, self._files)))
        return self._made


def _stamp(files: Sequence[Path]) -> Stamp:
    """A mark that tells one state of the files from another; None for one that is not there."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            seen = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((seen.st_mtime_ns, seen.st_ino, seen.st_size))
    return tuple(found)


def read_text(file: Path) -> str:
    """The text of a file of certificates or of a key.

    Raises:
        ConfigError: it cannot be read, or is none.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"The TLS file {file} cannot be read: {error.strerror}.") from error
    if len(data) > FILE_BYTES_MAX or not data.isascii():
        raise ConfigError(f"The TLS file {file} is no PEM file.")
    return data.decode("ascii")


def expiry_s(cert_file: Path) -> float:
    """The end of the certificate, in seconds since 1970.

    Raises:
        ConfigError: it does not read.
    """
    try:
        return not_after(read_text(cert_file)).timestamp()
    except ValueError as error:
        raise ConfigError(f"The TLS certificate file {cert_file} is no good: {error}.") from error


class Certificate:
    """The certificate of a process.

    Attributes:
        context: for connections that come.
        expires_s: when it ends, in seconds since 1970.
        pem, key_pem, client_ca_pem: the same for a library that makes no use of the context.
    """

    __slots__ = ("client_ca_pem", "context", "expires_s", "key_pem", "pem")

    def __init__(self, cert: Path, key: Path, client_ca: Path | None) -> None:
        """Reads the files.

        Raises:
            ConfigError: they are no good.
        """
        self.context = server_context(cert, key, client_ca)
        self.expires_s = expiry_s(cert)
        self.pem = read_text(cert).encode()
        self.key_pem = read_text(key).encode()
        self.client_ca_pem = None if client_ca is None else read_text(client_ca).encode()


def server_context(cert: Path, key: Path, client_ca: Path | None) -> ssl.SSLContext:
    """For connections that come.

    Raises:
        ConfigError: the files are no good.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    _show(context, cert, key)
    if client_ca is not None:
        believe(context, read_text(client_ca), f"The TLS authorities' file {client_ca}")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    ca: Path, cert: Path | None, key: Path | None, server_name: str | None
) -> ssl.SSLContext:
    """For connections that are made.

    Raises:
        ConfigError: the files are no good.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = server_name is not None
    believe(context, read_text(ca), f"The TLS authorities' file {ca}")
    if cert is not None and key is not None:
        _show(context, cert, key)
    return context


def _show(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    expiry_s(cert)
    if "PRIVATE KEY-----" not in read_text(key):
        raise ConfigError(f"The TLS key file {key} holds no private key in PEM.")
    try:
        # With a password, a key that needs one would be asked for at the terminal.
        context.load_cert_chain(cert, key, password="")
    except ssl.SSLError as error:
        if error.reason in MISMATCHES:
            why = f"the key in {key} is not that of the certificate in {cert}"
        else:
            why = f"the certificate in {cert} or the key in {key} does not read{because(error)}"
        raise ConfigError(f"TLS cannot be served: {why}; put a pair there.") from error
    except OSError as error:
        raise ConfigError(f"The TLS files {cert} and {key} cannot be read: {error}.") from error


def believe(context: ssl.SSLContext, pem: str, source: str) -> None:
    """Have a context believe certificates of the authorities in ``pem``.

    Raises:
        ConfigError: there are none; ``source`` begins the sentence.
    """
    try:
        context.load_verify_locations(cadata=pem)
    except (ssl.SSLError, ValueError) as error:  # ValueError: it is empty
        raise ConfigError(f"{source} holds no certificate in PEM.") from error
