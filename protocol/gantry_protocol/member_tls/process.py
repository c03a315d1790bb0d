"""The member certificate of one process: contexts, whom it believes, and counts.

All ports between members of a process, and all that dial such ports in it, have the same
:class:`MemberTls`; it goes where the quorum's key goes (``quorum_key.KeyFile``).
``NO_MEMBER_TLS`` is that of a process without any.

Rules protected: a process shows a certificate that names what it is, or does not start; a peer is
believed only if the authority of the members vouches for it, and its certificate names what is
expected where it was met, in this process's own domain. A replacement that does not name this
process is not taken: the last good one stays.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gantry_protocol.errors import ConfigError, MemberRefused
from gantry_protocol.member_tls.names import MemberName, Names
from gantry_protocol.member_tls.settings import MemberTlsSettings
from gantry_protocol.member_tls.turns import HandshakeTurns
from gantry_protocol.process import log
from gantry_protocol.process.metrics import counter, gauge
from gantry_protocol.tls.alt_names import uris_of
from gantry_protocol.tls.contexts import (
    Followed,
    client_context,
    expiry_s,
    read_text,
    server_context,
)
from gantry_protocol.tls.der import first_certificate
from gantry_protocol.tls.settings import TlsMode

ALPN = "gantry-member/1"
"""Named in the handshake by members that dial: the listener tells them whether it believes them."""

LOG_EVERY_S = 1.0
WARN_BEFORE_S = 7 * 86_400.0
WARN_EVERY_S = 3600.0
REASONS = ("plain", "certificate", "name", "left", "time", "crowd", "listener")
"""Of refusals: no TLS where it is enforced; a certificate that is missing or not believed, or a
handshake that failed otherwise; a name that is not the expected one; a peer that was gone before
the end of its handshake; a handshake that took too long; too many at once; a listener that this
process dialled and did not believe, or that did not believe it."""

_log = log.get("member tls")


class MemberCertificate:
    """Contexts and names, made of the three files.

    Attributes:
        listening: for connections that come to a port between members.
        optional: the same where peers without a certificate are served, too.
        http: for those who ask by HTTP, and show none.
        dialling: for connections that are made.
        names: of the certificate.
        expires_s: when it ends, in seconds since 1970.
    """

    def __init__(self, cert: Path, key: Path, ca: Path, needs: Sequence[MemberName]) -> None:
        """Reads the files.

        Raises:
            ConfigError: they are no good, or not for this process; one sentence.
        """
        self.names = _own_names(cert, needs)
        self.expires_s = expiry_s(cert)
        self.listening = server_context(cert, key, ca)
        self.optional = server_context(cert, key, ca)
        self.optional.verify_mode = ssl.CERT_OPTIONAL
        self.dialling = client_context(ca, cert, key, None)
        for context in (self.listening, self.optional, self.dialling):
            context.set_alpn_protocols([ALPN])
        self.http = server_context(cert, key, None)
        self.http.set_alpn_protocols(["http/1.1"])
        for context in (self.listening, self.optional):
            context.num_tickets = 0  # nobody resumes a session, so that each is judged anew
            context.options |= ssl.OP_NO_TICKET
        for context in (self.listening, self.dialling):
            context.minimum_version = ssl.TLSVersion.TLSv1_3  # both sides are of our kind


def _own_names(cert: Path, needs: Sequence[MemberName]) -> Names:
    try:
        names = Names.of(uris_of(first_certificate(read_text(cert))))
    except ValueError as error:
        raise ConfigError(f"The member certificate {cert} is no good: {error}.") from error
    missing = [item for item in needs if names is None or not names.has(item)]
    if names is None or missing:
        domain = "DOMAIN" if names is None else names.domain
        wanted = missing[0].in_domain(domain) if missing else "of a member"
        has = "it names no member" if names is None else f"it has {names}"
        raise ConfigError(
            f"The member certificate {cert} is not for this process: among its alternative names "
            f"must be the URI {wanted}, and {has}."
        )
    return names


class MemberTls:
    """See the module.

    Args:
        settings: where the files are.
        needs: what the certificate of this process must name.
        wall_clock: seconds since 1970.

    Attributes:
        mode: see ``MemberTlsSettings``.
        turns: of the handshakes of connections that come.
        handshakes: of connections that came; those that ended well.
        plain_accepted: connections that came without TLS, and were served while permissive.
        plain_dials: connections that were made without TLS, since that failed.
        refused: connections that were refused, by ``REASONS``.
    """

    def __init__(
        self,
        settings: MemberTlsSettings,
        needs: Sequence[MemberName] = (),
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Nothing is read before ``load``, or the first connection."""
        self.mode = settings.member_mode
        self.turns = HandshakeTurns()
        self.handshakes = self.plain_accepted = self.plain_dials = 0
        self.refused = dict.fromkeys(REASONS, 0)
        self._wall_clock = wall_clock
        self._followed: Followed[MemberCertificate] | None = None
        self._quiet_until_s = self._warned_s = -WARN_EVERY_S
        self._unsaid = 0
        cert, key = settings.member_tls_cert_file, settings.member_tls_key_file
        ca = settings.member_tls_ca_file
        if self.is_on and cert is not None and key is not None and ca is not None:
            make = partial(MemberCertificate, cert, key, ca, tuple(needs))
            self._followed = Followed((cert, key, ca), make)

    @property
    def is_on(self) -> bool:
        """Whether TLS is spoken between members at all."""
        return self.mode is not TlsMode.DISABLED

    @property
    def is_enforced(self) -> bool:
        """Whether nothing else is."""
        return self.mode is TlsMode.ENFORCING

    @property
    def expires_s(self) -> float:
        """End of the certificate in use, in seconds since 1970; 0 without one."""
        return 0.0 if self._followed is None else self.certificate().expires_s

    @property
    def reload_failures(self) -> int:
        """Changes of files that could not be used."""
        return 0 if self._followed is None else self._followed.failures

    def load(self) -> None:
        """Read all files, when a process starts.

        Raises:
            ConfigError: they are no good; one sentence.
        """
        if self._followed is not None:
            self._followed.load()
            self.certificate()

    def certificate(self) -> MemberCertificate:
        """The newest one that is good; only where TLS is on.

        Raises:
            ConfigError: there never was one.
        """
        assert self._followed is not None
        newest = self._followed.newest()
        now_s = self._wall_clock()
        if newest.expires_s - now_s < WARN_BEFORE_S and now_s - self._warned_s >= WARN_EVERY_S:
            self._warned_s = now_s
            days = (newest.expires_s - now_s) / 86_400
            _log.warning("the member certificate ends soon, renew it", days_left=round(days, 1))
        return newest

    def judge(self, secure: ssl.SSLObject, expected: Sequence[MemberName]) -> Names:
        """The names of the peer, whose handshake ended well.

        Raises:
            MemberRefused: it is none of ``expected``.
        """
        der = secure.getpeercert(binary_form=True)
        if der is None:
            raise MemberRefused("it shows no certificate")
        domain = self.certificate().names.domain
        try:
            names = Names.of(uris_of(der))
        except ValueError as error:
            raise MemberRefused(str(error)) from error
        if names is None:
            raise MemberRefused("its certificate names no member")
        if names.domain != domain:
            raise MemberRefused(f"its certificate is for {names}, and the domain here is {domain}")
        if not any(names.has(item) for item in expected):
            wanted = " or ".join(item.in_domain(domain).rstrip("/") for item in expected)
            raise MemberRefused(f"its certificate is for {names}, and not for {wanted}")
        return names

    def takes(self, names: Names | None, member: MemberName) -> bool:
        """Whether somebody with ``names``, or without a certificate, is taken for ``member``."""
        return not self.is_enforced if names is None else names.has(member)

    def note_refused(self, kind: str, port: str, peer: str, reason: str) -> None:
        """Count, and say so at most once a second; ``kind`` is one of ``REASONS``."""
        self.refused[kind] += 1
        now_s = asyncio.get_running_loop().time()
        if now_s < self._quiet_until_s:
            self._unsaid += 1
            return
        self._quiet_until_s = now_s + LOG_EVERY_S
        unsaid, self._unsaid = self._unsaid, 0
        _log.warning("member refused", port=port, peer=peer, reason=reason, others_since=unsaid)


NO_MEMBER_TLS = MemberTls(MemberTlsSettings())


def why_not(error: Exception) -> str:
    """The reason for which TLS with another member failed."""
    if isinstance(error, MemberRefused):
        return str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not believed ({error.verify_message})"
    if isinstance(error, ConfigError):
        return str(error).removesuffix(".")
    if isinstance(error, ssl.SSLError) and error.reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "it shows no certificate"
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return f"it does not believe the certificate of this process ({error.reason})"
    if isinstance(error, ConnectionError):
        return (
            "it ended the connection amid the handshake: it is older, was given no "
            "member_tls_cert_file, or stops"
        )
    return "it speaks no TLS between members: it is older, or was given no member_tls_cert_file"


class MemberTlsCollector(Collector):
    """The metrics of TLS between members."""

    def __init__(self, tls: MemberTls) -> None:
        """Nothing is counted here."""
        self._tls = tls

    def collect(self) -> Iterator[Metric]:
        """As of now."""
        tls = self._tls
        yield gauge(
            "gantry_member_tls_certificate_expires_seconds",
            "When the member certificate in use ends, in seconds since 1970; 0 without one.",
            tls.expires_s,
        )
        for name, text, value in (
            (
                "reload_failures",
                "Changes of member certificate files that could not be used.",
                tls.reload_failures,
            ),
            ("handshakes", "Members that came and were believed.", tls.handshakes),
            (
                "plain_accepted",
                "Connections of members, and requests to the admin API, served without TLS.",
                tls.plain_accepted,
            ),
            (
                "plain_dials",
                "Connections made to members without TLS, since that failed while permissive.",
                tls.plain_dials,
            ),
        ):
            yield counter(f"gantry_member_tls_{name}", text, value)
        refused = CounterMetricFamily(
            "gantry_member_tls_refused",
            "Connections between members, and of those who ask a controller by HTTP, that were "
            "refused: no TLS (plain, also admin requests), a certificate that is "
            "missing or not believed (certificate), one of another member (name), a peer that was "
            "gone amid its handshake (left), a handshake that took too long (time), too many at "
            "once (crowd), a listener that was dialled (listener).",
            labels=["reason"],
        )
        for reason, count in tls.refused.items():
            refused.add_metric([reason], count)
        yield refused
