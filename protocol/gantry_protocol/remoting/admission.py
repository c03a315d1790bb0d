"""Admission of a client's request: who has signed it, and whether that user may make it.

A signature is upstream's: the HMAC-SHA1, with the user's secret, of the values of all extension
fields but itself in the order of their names, then the body. It does not cover the code, and it can
be sent again by who reads it on its way; TLS prevents that.

One of the cluster's own processes may make a request *on behalf* of a user whose signature it has
judged itself (a proxy): it names the user and the address, and signs with the quorum's key. Such a
request is judged by that user's rules.

Pure: the state of the users comes in, a refusal or nothing comes out. What is refused names the
user, what was asked and why; never a secret, and not whether a user exists.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gantry_protocol.access.judgement import Demand, Judge
from gantry_protocol.access.rules import User
from gantry_protocol.codes import RequestCode
from gantry_protocol.command import RemotingCommand
from gantry_protocol.errors import WireError
from gantry_protocol.remoting import demands
from gantry_protocol.remoting.demands import Demands
from gantry_protocol.remoting.signatures import (
    ACCESS_KEY_FIELD,
    SIGNATURE_FIELD,
    sign,
    signed_content,
)

BEHALF_FIELD, SOURCE_FIELD = "gantryFor", "gantryFrom"  # a user, and the address it came from
SHOWN_CHARS = 64  # of a user's name, which may be anything that a stranger writes
_NOBODY = "-"
NOBODYS = frozenset({"unsigned", "signature"})  # reasons of denials: no user has signed


class Admitted(NamedTuple):
    """A request that may be served.

    Attributes:
        user: who has signed it.
        judge: of the user's rules; None for a super user, who may do everything.
    """

    user: str
    judge: Judge | None


class Denied(NamedTuple):
    """A request that may not be served.

    Attributes:
        user: who says to have signed it; ``-`` for nobody.
        reason: one word for metrics.
        sentence: for people.
    """

    user: str
    reason: str
    sentence: str


class Users:
    """The users of a cluster, as they were told; another state is another object.

    Args:
        cluster: whose users.
        users: by name.
    """

    def __init__(self, cluster: str, users: Mapping[str, User]) -> None:
        """Rules are read when they are needed first."""
        self._cluster = cluster
        self._users = users
        self._judges: dict[str, Judge] = {}

    def __len__(self) -> int:
        return len(self._users)

    def may(self, name: str, demand: Demand, source: str) -> bool:
        """Whether the user ``name``, which has signed before, may still do this."""
        user = self._users.get(name)
        if user is None or not user.is_enabled:
            return False
        return user.is_super or self._judge(name, user).refused((demand,), source) is None

    def _judge(self, name: str, user: User) -> Judge:
        return self._judges.get(name) or self._judges.setdefault(name, Judge(user))

    def admit(self, command: RemotingCommand, source: str) -> Admitted | Denied:
        """Whether ``command``, which came from the address ``source``, may be served."""
        ext = command.ext or {}
        name = ext.get(ACCESS_KEY_FIELD, "")
        shown = ext.get(SIGNATURE_FIELD, "")
        code = _code_name(command.code)
        if not name or not shown:
            return unsigned(code)
        denied = self.not_signed(
            name, code, lambda user: _has_signed(user, ext, command.body, shown)
        )
        return denied or self.judged(name, code, self._row(command), source)

    def admit_for(self, name: str, command: RemotingCommand, source: str) -> Admitted | Denied:
        """The same of ``command`` on behalf of the user ``name``, who has signed elsewhere."""
        return self.judged(name, _code_name(command.code), self._row(command), source)

    def not_signed(self, name: str, what: str, has_signed: Callable[[User], bool]) -> Denied | None:
        """The denial of ``what``, unless a user ``name`` is known who has signed it."""
        user = self._users.get(name)
        if user is not None and has_signed(user):
            return None
        label = name[:SHOWN_CHARS]
        sentence = f"User:{label} is not known here, or has not signed {what} with its secret"
        return Denied(label, "signature", sentence)

    def judged(
        self, name: str, what: str, demanded: Callable[[], Demands] | None, source: str
    ) -> Admitted | Denied:
        """Whether the user ``name``, who has signed, may do this from the address ``source``.

        Args:
            name: of the user.
            what: for people.
            demanded: what it needs; None: to be a super user.
            source: an address.
        """
        label = name[:SHOWN_CHARS]
        user = self._users.get(name)
        if user is None:
            return Denied(label, "unknown", f"User:{label} is not known here")
        if not user.is_enabled:
            return Denied(label, "disabled", f"User:{label} is disabled")
        if user.is_super:
            return Admitted(name, None)
        if demanded is None:
            sentence = f"User:{label} may not make {what}: super users may"
            return Denied(label, "super", sentence)
        judge = self._judge(name, user)
        try:
            refused = judge.refused(demanded(), source)
        except WireError as error:
            return Denied(label, "unreadable", f"{what} of User:{label} cannot be judged: {error}")
        if refused is not None:
            return Denied(label, "rules", denial(label, refused, source))
        return Admitted(name, judge)

    def _row(self, command: RemotingCommand) -> Callable[[], Demands] | None:
        row = demands.TABLE.get(command.code)
        return None if row is None else lambda: row(command, self._cluster)


def unsigned(what: str) -> Denied:
    """The denial of what nobody has signed."""
    sentence = f"{what} is not signed, and this cluster serves nobody without a user"
    return Denied(_NOBODY, "unsigned", sentence)


def denial(user: str, refused: Demand, source: str) -> str:
    """The sentence about a demand that the rules of ``user`` refuse."""
    return f"User:{user} has no permission for {refused} from {source or 'an unknown address'}"


def signed(command: RemotingCommand, access_key: str, secret: bytes) -> RemotingCommand:
    """Adds the signature of ``access_key`` to ``command``, in place of any other."""
    ext = {**(command.ext or {}), ACCESS_KEY_FIELD: access_key}
    ext.pop(SIGNATURE_FIELD, None)
    ext[SIGNATURE_FIELD] = sign(secret, signed_content(ext, command.body)).decode()
    command.ext = ext
    return command


def _has_signed(user: User, ext: dict[str, str], body: bytes, shown: str) -> bool:
    made = sign(user.secret.encode(), signed_content(ext, body))
    return hmac.compare_digest(made, shown.encode("utf-8", "surrogatepass"))


def _code_name(code: int) -> str:
    try:
        return RequestCode(code).name
    except ValueError:
        return f"a request of code {code}"
