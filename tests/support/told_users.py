"""Users of a cluster that a test tells, in the place of controllers."""

from __future__ import annotations

from gantry_protocol.access.rules import User
from gantry_protocol.bodies import encode_body
from gantry_protocol.bodies.access import ClusterAccess
from gantry_protocol.command import reply, request
from gantry_protocol.quorum_key import KeyFile
from gantry_protocol.remoting.known_users import KnownUsers


class Controllers:
    """They are asked nothing; the test tells."""

    def ask(self, *_: object, **__: object) -> None:
        return None


class Known(KnownUsers):
    """Users that the test tells."""

    def __init__(self, key: KeyFile) -> None:
        super().__init__("c", Controllers(), key)
        self._told = 0

    def tell(self, *, enabled: bool = True, **users: User) -> None:
        self._told += 1
        said = ClusterAccess(self._told, enabled, is_news=True, users=users)
        self._answered(reply(request(1), body=encode_body(said)))
