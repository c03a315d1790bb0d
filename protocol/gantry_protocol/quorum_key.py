"""The quorum's key: what a process shows to command the controllers, or to take part in a group.

One secret for all processes of a quorum, kept in a file that each of them can read. It is never
sent. The side that dials, and the side that listens, each prove to the other that they hold it: an
HMAC-SHA256 over both sides' fresh random nonces, what the connection is for, who shows it, and what
was said before it. So a proof is worth nothing on another connection, for another purpose, or sent
back to the side that made it. The dialler shows first: a stranger hears a nonce and nothing that
was made from the key.

The file has one line, or two while the key is replaced: the first is shown, all are believed. It is
read for each new connection. What it does not do: hide or seal what is said afterwards. Whoever can
change packets on their way can take over a connection; that is TLS's to prevent.
"""

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from gantry_protocol.errors import ConfigError
from gantry_protocol.member_tls.process import NO_MEMBER_TLS, MemberTls

KEY_CHARS_MIN = 16
KEYS_MAX = 2
FILE_BYTES_MAX = 4096
NONCE_BYTES = 32
PROOF_BYTES = hashlib.sha256().digest_size

KEY_FILE_HELP = (
    "File with the quorum's key, one line of at least 16 characters: who shows it commands the "
    "controllers and takes part in groups. Read at each new connection; while the key is replaced "
    "a second line is believed, too."
)
ALLOW_HELP = (
    "Believe whoever shows no key, as Java brokers and tools do. It opens the controllers to "
    "everybody who reaches ports 9878 and 9876: they may register brokers, move masterships and "
    "delete metadata. Without a key file, ports 9879 and 10912 and those of stores believe anybody "
    "as well."
)


class Purpose(Enum):
    """The purpose of a connection; a proof for one is none for another."""

    CONTROL = b"control"
    RAFT = b"raft"
    REPLICATION = b"replication"
    STORE = b"store"


class Side(Enum):
    """The side that shows a proof."""

    DIALLER = b"dialler"
    LISTENER = b"listener"


class Nonces(NamedTuple):
    """The contribution of each side to one handshake, and what else both have said."""

    dialler: bytes
    listener: bytes
    context: bytes = b""


class KeyFile:
    """The place of the key; ``file`` None: there is none, and nothing is shown or asked for.

    Attributes:
        tls: the certificate that is shown before it, and believed, between the same processes.
    """

    def __init__(self, file: Path | None, tls: MemberTls = NO_MEMBER_TLS) -> None:
        """Nothing is read before it is needed."""
        self.file = file
        self.tls = tls

    @property
    def is_set(self) -> bool:
        """Whether the other side has to show the key."""
        return self.file is not None

    def keys(self) -> tuple[bytes, ...]:
        """The keys: the first is shown, all are believed. None without a file.

        Raises:
            ConfigError: the file cannot be read, or holds no key; says what to put there.
        """
        return () if self.file is None else read_keys(self.file)


NO_KEY = KeyFile(None)


def read_keys(file: Path) -> tuple[bytes, ...]:
    """The keys in ``file``.

    Raises:
        ConfigError: it cannot be read, or holds no key; says what to put there.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(FILE_BYTES_MAX + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"The quorum's key file {file} cannot be read: {why}.") from error
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wish = f"put one line of at least {KEY_CHARS_MIN} characters there"
    if not lines:
        raise ConfigError(f"The quorum's key file {file} is empty; {wish}.")
    if len(text) > FILE_BYTES_MAX or len(lines) > KEYS_MAX:
        raise ConfigError(f"The quorum's key file {file} has more than {KEYS_MAX} lines; {wish}.")
    if any(len(line) < KEY_CHARS_MIN for line in lines):
        raise ConfigError(f"The key in the quorum's key file {file} is too short; {wish}.")
    return tuple(line.encode() for line in lines)


def write_key(file: Path) -> Path:
    """Makes a key of its own in ``file``, which only this user can read; one that exists stays."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(secrets.token_hex(32) + "\n")
    return file


def demand_key(file: Path | None, *, allow_unauthenticated: bool, process: str) -> KeyFile:
    """The key of a process that listens.

    Raises:
        ConfigError: it has none and may not do without, or the file holds none.
    """
    if file is None and not allow_unauthenticated:
        raise ConfigError(
            f"This {process} has no quorum key, so anybody could command it: give "
            "--quorum-key-file (GANTRY_QUORUM_KEY_FILE) a file with one line of at least "
            f"{KEY_CHARS_MIN} characters, the same for all controllers and brokers, or "
            "--allow-unauthenticated to run open to whoever reaches its ports."
        )
    key = KeyFile(file)
    key.keys()
    return key


def new_nonce() -> bytes:
    """A fresh one."""
    return secrets.token_bytes(NONCE_BYTES)


def prove(key: bytes, purpose: Purpose, side: Side, nonces: Nonces) -> bytes:
    """The proof of ``side``."""
    mac = hmac.new(key, b"gantry quorum key 1", hashlib.sha256)
    for part in (purpose.value, side.value, nonces.dialler, nonces.listener, nonces.context):
        mac.update(len(part).to_bytes(4, "big") + part)
    return mac.digest()


def believed(
    keys: Sequence[bytes], purpose: Purpose, side: Side, nonces: Nonces, shown: bytes
) -> bytes | None:
    """The key of which ``shown`` is the proof; None if it is of none."""
    if len(nonces.dialler) != NONCE_BYTES or len(nonces.listener) != NONCE_BYTES:
        return None
    for key in keys:
        if hmac.compare_digest(prove(key, purpose, side, nonces), shown):
            return key
    return None
