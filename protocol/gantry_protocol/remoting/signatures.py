"""Requests that RocketMQ's own tools and brokers have signed with the quorum's key.

An unmodified ``mqadmin`` or Java broker cannot show the key, but it can sign: with the access key
``gantry`` and the quorum's key as its secret key (``conf/tools.yml``, or the credentials of the
inner client), its RPC hook adds ``AccessKey`` and ``Signature`` to each request. The signature is
the HMAC-SHA1 of the extension fields' values in the order of their names, then the body, as
upstream's AclUtils makes it.

It is weaker than a proof: it does not cover the code, and who can read packets can send a signed
request again, to any controller, for as long as the key is the same. It is no use to who cannot.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence

from gantry_protocol.access.rules import RESERVED_USER
from gantry_protocol.command import RemotingCommand

ACCESS_KEY = RESERVED_USER
ACCESS_KEY_FIELD = "AccessKey"
SIGNATURE_FIELD = "Signature"


def carries_signature(command: RemotingCommand) -> bool:
    """Whether ``command`` says that it is signed with the quorum's key."""
    ext = command.ext or {}
    return SIGNATURE_FIELD in ext and ext.get(ACCESS_KEY_FIELD) == ACCESS_KEY


def carries_any_signature(command: RemotingCommand) -> bool:
    """Whether ``command`` is signed at all, with whatever key."""
    return SIGNATURE_FIELD in (command.ext or {})


def is_signed(command: RemotingCommand, keys: Sequence[bytes]) -> bool:
    """Whether one of ``keys`` has signed ``command``."""
    ext = command.ext or {}
    if not carries_signature(command):
        return False
    content = signed_content(ext, command.body)
    shown = ext[SIGNATURE_FIELD].encode()
    return any(hmac.compare_digest(sign(key, content), shown) for key in keys)


def signed_content(ext: dict[str, str], body: bytes) -> bytes:
    """The bytes that upstream signs."""
    names = sorted(name for name in ext if name != SIGNATURE_FIELD)
    return "".join(ext[name] for name in names).encode() + body


def sign(key: bytes, content: bytes) -> bytes:
    """The signature, in base64."""
    return base64.b64encode(hmac.new(key, content, hashlib.sha1).digest())
