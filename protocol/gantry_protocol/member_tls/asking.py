"""TLS of those who ask controllers and are no members: the operator, and commands.

They show no certificate, their token says who they are; so it must reach nobody but a controller.
The context checks, as a part of the handshake and so before anything is said, that the members'
authority vouches for the other side, and that its certificate names a controller of the domain:
a broker's certificate of the same authority will not do. Addresses are not compared with anything;
pods and processes come and go.
"""

import base64
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, Self

from gantry_protocol.errors import ConfigError, MemberRefused
from gantry_protocol.member_tls.names import MemberKind, MemberName, Names
from gantry_protocol.tls.alt_names import uris_of
from gantry_protocol.tls.contexts import Followed, believe, read_text
from gantry_protocol.tls.der import first_certificate

CONTROLLER = MemberName(MemberKind.CONTROLLER)
CA_ENTRY, CERT_ENTRY = "ca.crt", "tls.crt"


class Trust(Protocol):
    """The controllers that somebody believes.

    Attributes:
        plainly: whether one with which TLS fails is asked without, as between permissive members.
    """

    @property
    def plainly(self) -> bool:
        """See the class."""

    async def context(self, *, fresh: bool) -> ssl.SSLContext:
        """For the next connection; ``fresh``: what is known was not enough, look again.

        Raises:
            ConfigError: nobody can be believed; one sentence.
        """


class KnownTrust:
    """The same controllers for as long as it is used.

    Attributes:
        plainly: no.
    """

    plainly = False

    def __init__(self, context: ssl.SSLContext) -> None:
        """``context`` as ``controllers_context`` makes it."""
        self._context = context

    async def context(self, *, fresh: bool) -> ssl.SSLContext:
        """See ``Trust``."""
        return self._context


class FileTrust:
    """Controllers for which the authorities in a file vouch; the file is followed.

    Attributes:
        plainly: no: whoever names the file wants TLS.
    """

    plainly = False

    def __init__(self, ca: Path, domain: str | None) -> None:
        """Reads the file; ``domain`` None: of any domain.

        Raises:
            ConfigError: it is no good.
        """
        self._followed = Followed(
            (ca,), lambda: controllers_context(read_text(ca), domain, f"The file {ca}")
        )
        self._followed.load()

    async def context(self, *, fresh: bool) -> ssl.SSLContext:
        """See ``Trust``."""
        return self._followed.newest()


class SecretEntries(NamedTuple):
    """The parts of a Secret of controllers that tell whom to believe; its key is none of them.

    Attributes:
        ca: the authorities, PEM.
        domain: of the controllers, as their own certificate has it.
    """

    ca: str
    domain: str

    @classmethod
    def of(cls, data: Mapping[str, str], secret: str) -> Self:
        """From the entries, in base64.

        Raises:
            ConfigError: they do not say it; names ``secret``.
        """
        try:
            ca, cert = (
                base64.b64decode(data[entry], validate=True).decode("ascii")
                for entry in (CA_ENTRY, CERT_ENTRY)
            )
            names = Names.of(uris_of(first_certificate(cert)))
        except KeyError as error:
            raise ConfigError(f"The Secret {secret} has no entry {error}.") from error
        except ValueError as error:
            raise ConfigError(f"The Secret {secret} is no good: {error}.") from error
        if names is None:
            raise ConfigError(f"The certificate in the Secret {secret} names no member.")
        return cls(ca, names.domain)

    def context(self, secret: str) -> ssl.SSLContext:
        """For connections to these controllers.

        Raises:
            ConfigError: the authorities do not read.
        """
        return controllers_context(self.ca, self.domain, f"Entry {CA_ENTRY} of the Secret {secret}")


def controllers_context(ca_pem: str, domain: str | None, source: str) -> ssl.SSLContext:
    """For connections to controllers.

    Args:
        ca_pem: certificates of the authorities of members.
        domain: of the controllers; None: any.
        source: of ``ca_pem``, as the beginning of a sentence.

    Raises:
        ConfigError: there is no certificate in ``ca_pem``.
    """
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.domain = domain
    context.check_hostname = False  # a member's name is a URI
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    believe(context, ca_pem, source)
    return context


class _Checked(ssl.SSLObject):
    """The side of one connection that asks."""

    def do_handshake(self) -> None:
        """Shake hands, and judge.

        Raises:
            ssl.SSLCertVerificationError: it is no controller of the domain.
        """
        super().do_handshake()
        context = self.context
        assert isinstance(context, _Context)
        der = self.getpeercert(binary_form=True)
        assert der is not None, "the context demands a certificate"
        try:
            check_controller(der, context.domain)
        except MemberRefused as error:
            refused = ssl.SSLCertVerificationError(1, str(error))
            refused.verify_message = str(error)
            raise refused from error


class _Context(ssl.SSLContext):
    """A context whose handshakes end well with controllers only."""

    sslobject_class = _Checked
    domain: str | None = None


def check_controller(der: bytes, domain: str | None) -> None:
    """Judge a certificate that is believed.

    Raises:
        MemberRefused: it is not that of a controller of ``domain``.
    """
    try:
        names = Names.of(uris_of(der))
    except ValueError as error:
        raise MemberRefused(str(error)) from error
    if names is None:
        raise MemberRefused("it names no member")
    if not names.has(CONTROLLER) or domain not in (None, names.domain):
        wanted = CONTROLLER.in_domain(domain or "DOMAIN")
        raise MemberRefused(f"it is for {names}, and not for {wanted}")
