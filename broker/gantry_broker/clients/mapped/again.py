"""Sends that a master of another group passed on, and a later master of that group again.

What the first one said may be on its way still: its machine was cut off, or its process stood
still. When that comes at last, it says nothing of having come before. So whoever was given a send
again remembers it, and looks also for what comes later and is the same to the last byte. Two of
them are not looked for at once, since neither would find the other.

Bounded: ``AGAIN_MAX`` sends, each for as long as its record would be found.
"""

import hashlib

from gantry_protocol.command import RemotingCommand

from gantry_broker.clients.mapped.places import PHYSICAL
from gantry_broker.clients.plain_sends import send_header

PASSED_AGAIN = "gantryPassedAgain"  # in a send from group to group, which may have come before
LOOK_ONLY = "only"  # as its value: tell the place, and store nothing
AGAIN_MAX = 4_096
_DIGEST_BYTES = 16


class Again:
    """See the module.

    Args:
        kept_s: how long one is remembered.
    """

    def __init__(self, kept_s: float) -> None:
        """None has come."""
        self._kept_s = kept_s
        self._until_s: dict[bytes, float] = {}  # by digest, in this order
        self._sought: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._until_s)

    def has(self, request: RemotingCommand) -> bool:
        """Whether a send says that it may have come before, or is the same as one that did."""
        ext = request.ext or {}
        if PASSED_AGAIN in ext:
            return True
        return bool(self._until_s) and PHYSICAL in ext and digest(request) in self._until_s

    def remember(self, send: bytes, now_s: float) -> None:
        """It may come once more."""
        self._until_s.pop(send, None)
        self._until_s[send] = now_s + self._kept_s
        while True:
            oldest = next(iter(self._until_s))
            if self._until_s[oldest] > now_s and len(self._until_s) <= AGAIN_MAX:
                return
            del self._until_s[oldest]

    def is_sought(self, send: bytes) -> bool:
        """Whether the same one is being looked for."""
        return send in self._sought

    def begin(self, send: bytes) -> None:
        """It is looked for from now on."""
        self._sought.add(send)

    def end(self, send: bytes) -> None:
        """It was answered, or is being stored."""
        self._sought.discard(send)


def digest(request: RemotingCommand) -> bytes:
    """The same for what a client has said once, whoever passed it on; its queue may have moved.

    Raises:
        HeaderError: it is malformed.
    """
    header = send_header(request)
    said = f"{header.topic}\0{header.born_timestamp}\0{header.properties or ''}\0".encode()
    return hashlib.blake2b(said + request.body, digest_size=_DIGEST_BYTES).digest()
