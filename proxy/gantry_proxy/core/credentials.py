"""Signatures of calls: who says to have made one, and whether that user's secret has signed it.

A client sends ``authorization: MQv2-HMAC-SHA1 Credential=USER, SignedHeaders=x-mq-date-time,
Signature=HEX``; the signature is the HMAC-SHA1, with the user's secret, of the text in
``x-mq-date-time``. It covers neither the method nor the message, and its time is compared with no
clock, as upstream's is not (``DefaultAuthenticationContextBuilder``): who reads a call on its way
can make others as the same user until the secret changes. TLS prevents that.

Pure: texts in, a value out.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTHORIZATION, DATE_TIME = "authorization", "x-mq-date-time"
AUTHORIZATION_CHARS_MAX = 1_024
DATE_TIME_CHARS_MAX = 64
_CREDENTIAL, _SIGNATURE = "Credential", "Signature"


class UnreadableError(ValueError):
    """An authorization that says nothing; the sentence says why, and repeats nothing of it."""


class CallCredentials(msgspec.Struct, frozen=True):
    """A call's word for its user, and what is to prove it.

    Attributes:
        user: whom it says to come from.
        content: what was signed.
        signature: of it; empty where it names none.
    """

    user: str
    content: bytes
    signature: bytes

    def __repr__(self) -> str:
        return f"CallCredentials(user={self.user!r})"  # the rest would do for a call of one's own

    def are_of(self, secret: str) -> bool:
        """Whether ``secret`` has signed."""
        made = hmac.new(secret.encode(), self.content, hashlib.sha1).digest()
        return hmac.compare_digest(made, self.signature)


def credentials(metadata: Mapping[str, str]) -> CallCredentials | None:
    """The credentials in a call's metadata; None: it is not signed.

    Raises:
        UnreadableError: they are none.
    """
    text = metadata.get(AUTHORIZATION, "")
    if not text:
        return None
    signed = metadata.get(DATE_TIME, "")
    if len(text) > AUTHORIZATION_CHARS_MAX or len(signed) > DATE_TIME_CHARS_MAX:
        raise UnreadableError("its authorization or date is too long")
    if not signed:
        raise UnreadableError(f"it is signed, and {DATE_TIME} is missing")
    _, _, rest = text.partition(" ")
    items = dict(_item(part) for part in rest.split(","))
    user = items.get(_CREDENTIAL, "").partition("/")[0]  # some clients write USER//Rocketmq
    if not user:
        raise UnreadableError("its authorization names no user")
    try:
        signature = bytes.fromhex(items.get(_SIGNATURE, ""))
    except ValueError:
        raise UnreadableError("its signature is no hexadecimal number") from None
    return CallCredentials(user, signed.encode(), signature)


def claimed_user(metadata: Mapping[str, str]) -> str:
    """Whom a call says to come from, whether it is signed or not; empty for nobody."""
    try:
        found = credentials(metadata)
    except UnreadableError:
        return ""
    return "" if found is None else found.user


def _item(part: str) -> tuple[str, str]:
    name, separator, value = part.strip().partition("=")
    if not separator:
        raise UnreadableError("a part of its authorization has no value")
    return name, value
