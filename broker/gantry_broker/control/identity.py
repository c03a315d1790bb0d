"""The identity of a volume: the broker id the controller gave it, kept beside the log.

Rules protected: an id belongs to one volume for ever; it is never derived from a pod's ordinal or
address, and an empty volume gets a new one. The check code is stored *before* the id is applied
for, so that an application whose answer was lost is repeated with the same code and costs no second
id. (RocketMQ's ``TempBrokerMetadata`` throws the code away on any error, and an id with it.)

What it refuses: an identity file of another group, of a newer format, or damaged.
"""

from pathlib import Path

import google_crc32c
import msgspec
from gantry_protocol.errors import CorruptionError, DataDirError
from gantry_protocol.process.files import atomic_write
from gantry_protocol.types import BrokerId

FILE = "broker.json"
FORMAT = 1


class Identity(msgspec.Struct, frozen=True):
    """The content of the file.

    Attributes:
        broker_id: None until the controller has confirmed one.
        applying_for: the id last applied for; it may have been granted.
        check_code: proves that a repeated application is the same one.
    """

    cluster: str
    group: str
    check_code: str
    broker_id: BrokerId | None = None
    applying_for: BrokerId | None = None


class _Sealed(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    crc32c: int
    identity: Identity


_decoder = msgspec.json.Decoder(_Sealed)


def load(directory: Path) -> Identity | None:
    """The stored identity; None on a new volume.

    Raises:
        CorruptionError: the file is damaged.
        DataDirError: a newer version wrote it.
    """
    path = directory / FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        found = msgspec.json.decode(data)
        version = found.get("format") if isinstance(found, dict) else None
        if isinstance(version, int) and version != FORMAT:
            raise DataDirError(
                f"{path} has format {version}, this version reads format {FORMAT}; "
                f"start the version that wrote it."
            )
        sealed = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptionError(path, 0, f"it does not read ({error})") from error
    if sealed.crc32c != _checksum(sealed.identity):
        raise CorruptionError(path, 0, "its checksum does not match")
    return sealed.identity


def save(directory: Path, identity: Identity) -> None:
    """Keep ``identity``; durable on return."""
    sealed = _Sealed(FORMAT, _checksum(identity), identity)
    atomic_write(directory / FILE, msgspec.json.format(msgspec.json.encode(sealed)) + b"\n")


def check_group(directory: Path, identity: Identity, cluster: str, group: str) -> None:
    """Refuse the volume of another group.

    Raises:
        DataDirError: says whose it is.
    """
    if (identity.cluster, identity.group) != (cluster, group):
        raise DataDirError(
            f"{directory / FILE} belongs to broker {identity.broker_id} of group "
            f"{identity.cluster}/{identity.group}, this process is of {cluster}/{group}; "
            f"start it with the volume that belongs to it."
        )


def _checksum(identity: Identity) -> int:
    return int(google_crc32c.value(msgspec.json.encode(identity)))
