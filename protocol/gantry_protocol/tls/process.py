"""The TLS of one process: its context for those who come, its context for those it dials, counts.

Every port for clients of a process, and all that dial such ports in it, are given the same
:class:`Tls`. ``NO_TLS`` is that of a process without any.
"""

import ssl
from collections.abc import Iterator
from functools import partial
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gantry_protocol.process.metrics import counter, gauge
from gantry_protocol.tls.admission import EVERYBODY, Admission
from gantry_protocol.tls.contexts import Certificate, Followed, client_context
from gantry_protocol.tls.settings import TlsFiles, TlsMode, TlsSettings


class Tls:
    """See the module.

    Args:
        settings: where the files are; without a mode every port that speaks TLS speaks it only.

    Attributes:
        mode: who is served at ports for clients.
        server_name: that certificates of dialled ports must be for; None: any will do.
        dials_plainly: whether a dialled port that speaks no TLS is spoken to all the same.
        handshakes: of connections that came; those that ended well.
        handshake_failures: the others.
        plain_refused: connections that came without TLS and were ended for it.
        plain_dials: connections that were made without TLS, since the other side speaks none.
    """

    def __init__(self, settings: TlsFiles) -> None:
        """Nothing is read before ``load``, or the first connection."""
        mode = TlsMode.ENFORCING if settings.tls_cert_file else TlsMode.DISABLED
        self.mode = settings.mode if isinstance(settings, TlsSettings) else mode
        self.server_name = settings.tls_server_name
        self.handshakes = self.handshake_failures = self.plain_refused = self.plain_dials = 0
        self._served: Followed[Certificate] | None = None
        self._dialled: Followed[ssl.SSLContext] | None = None
        cert, key = settings.tls_cert_file, settings.tls_key_file
        ca, client_ca = settings.tls_ca_file, settings.tls_client_ca_file
        if cert is not None and key is not None:
            self._served = Followed(
                [file for file in (cert, key, client_ca) if file is not None],
                partial(Certificate, cert, key, client_ca),
            )
        if ca is not None:
            self._dialled = Followed(
                [file for file in (ca, cert, key) if file is not None],
                partial(client_context, ca, cert, key, self.server_name),
            )
        self.dials_plainly = isinstance(settings, TlsSettings) and self.mode is TlsMode.PERMISSIVE
        self._ca = ca

    @property
    def is_served(self) -> bool:
        """Whether ports for clients speak TLS."""
        return self.mode is not TlsMode.DISABLED

    @property
    def expires_s(self) -> float:
        """End of the certificate in use, in seconds since 1970; 0 without one."""
        return 0.0 if self._served is None else self._served.newest().expires_s

    @property
    def reload_failures(self) -> int:
        """Changes of files that could not be used."""
        return sum(item.failures for item in (self._served, self._dialled) if item is not None)

    def load(self) -> None:
        """Read all files, when a process starts.

        Raises:
            ConfigError: some are no good; one sentence.
        """
        if self._served is not None:
            self._served.load()
        self.for_client()

    def for_server(self) -> Certificate:
        """For a connection that came; only where TLS is served."""
        assert self._served is not None
        return self._served.newest()

    def server_context(self) -> ssl.SSLContext:
        """The same for a library that needs no more."""
        return self.for_server().context

    def admit(self, secure: ssl.SSLObject, attrs: dict[str, Any]) -> Admission:
        """Everybody who has shaken hands: the context says whose certificates will do."""
        return EVERYBODY

    def for_client(self) -> ssl.SSLContext | None:
        """For a connection that is made; None: it is a plain one.

        Raises:
            ConfigError: the files are no good, and never were.
        """
        dialled, ca = self._dialled, self._ca
        if dialled is None or ca is None:
            return None
        if self.dials_plainly and not dialled.is_made and not ca.exists():
            return None  # a Secret that names no authority, which is well while permissive
        return dialled.newest()


NO_TLS = Tls(TlsFiles())


class TlsCollector(Collector):
    """The metrics of a process's TLS."""

    def __init__(self, tls: Tls) -> None:
        """Nothing is counted here."""
        self._tls = tls

    def collect(self) -> Iterator[Metric]:
        """As of now."""
        tls = self._tls
        yield gauge(
            "gantry_tls_certificate_expires_seconds",
            "When the certificate in use ends, in seconds since 1970; 0 without one.",
            tls.expires_s,
        )
        for name, text, value in (
            (
                "reload_failures",
                "Changes of certificate files that could not be used: the last good ones stayed.",
                tls.reload_failures,
            ),
            ("handshakes", "TLS handshakes of clients that ended well.", tls.handshakes),
            (
                "handshake_failures",
                "TLS handshakes of clients that failed.",
                tls.handshake_failures,
            ),
            (
                "plain_refused",
                "Connections ended since TLS is enforced and they began without.",
                tls.plain_refused,
            ),
            (
                "plain_dials",
                "Connections made without TLS, since the other side speaks none.",
                tls.plain_dials,
            ),
        ):
            yield counter(f"gantry_tls_{name}", text, value)
