"""The TLS of a port that members share with others: the controllers' remoting port.

Everybody is served, with TLS or without; but who shows a certificate shows one of a member, and
what only members may say is judged request by request (``names_of``). Tools of the old kind go on
to read there. A member that dials is told whether it is believed, as at ports between members.
"""

import ssl
from collections.abc import Mapping, Sequence
from typing import Any, cast

from gantry_protocol.errors import MemberRefused
from gantry_protocol.member_tls.arriving import BELIEVED, PEER_NAMES, refusal
from gantry_protocol.member_tls.names import MemberName, Names
from gantry_protocol.member_tls.process import ALPN, MemberTls
from gantry_protocol.tls.admission import Admission
from gantry_protocol.tls.settings import TlsMode


class MixedPort:
    """See the module, and ``ServedTls``.

    Args:
        tls: of the process.
        expected: members that may come.

    Attributes:
        mode: permissive, or disabled: nobody is refused for want of TLS.
        plain_refused: none.
        handshake_failures: handshakes that ended otherwise than well.
    """

    def __init__(self, tls: MemberTls, expected: Sequence[MemberName]) -> None:
        """Nobody has come."""
        self.mode = TlsMode.PERMISSIVE if tls.is_on else TlsMode.DISABLED
        self.plain_refused = 0
        self._tls = tls
        self._expected = expected

    @property
    def is_served(self) -> bool:
        """Whether TLS is spoken."""
        return self._tls.is_on

    @property
    def handshakes(self) -> int:
        """Those that ended well, of all ports of the process."""
        return self._tls.handshakes

    @handshakes.setter
    def handshakes(self, count: int) -> None:
        self._tls.handshakes = count

    @property
    def handshake_failures(self) -> int:
        """Those that did not, likewise."""
        return self._tls.refused["certificate"]

    @handshake_failures.setter
    def handshake_failures(self, count: int) -> None:
        self._tls.refused["certificate"] = count

    def server_context(self) -> ssl.SSLContext:
        """For a connection that came."""
        return self._tls.certificate().optional

    def admit(self, secure: ssl.SSLObject, attrs: dict[str, Any]) -> Admission:
        """Judge a certificate; without one the connection is a stranger's, as without TLS."""
        speaks = secure.selected_alpn_protocol() == ALPN
        if secure.getpeercert(binary_form=True) is None and not speaks:
            return Admission()
        try:
            attrs[PEER_NAMES] = self._tls.judge(secure, self._expected)
        except MemberRefused as error:
            self._tls.refused["name"] += 1
            return Admission(refusal(str(error)) if speaks else b"", str(error))
        return Admission(BELIEVED if speaks else b"")


def names_of(attrs: Mapping[str, Any]) -> Names | None:
    """The names of the member at the other side of a connection with ``attrs``."""
    return cast(Names | None, attrs.get(PEER_NAMES))
