"""Certificates for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives import serialization


class Pair(NamedTuple):
    """The files of a certificate."""

    cert: Path
    key: Path


class Authority:
    """An authority with its own directory.

    Attributes:
        file: its certificate.
    """

    def __init__(self, directory: Path, name: str = "authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._ca = trustme.CA(organization_name=name)
        self.file = directory / f"{name}.pem"
        self._ca.cert_pem.write_to_path(self.file)

    def issue(self, name: str, *, into: Pair | None = None, days: int = 1) -> Pair:
        """A certificate for ``name``, in files of that name or in those of another one."""
        pair = into or Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        ends = datetime.now(UTC) + timedelta(days=days)
        made = self._ca.issue_cert(name, common_name=name, not_after=ends)
        made.private_key_pem.write_to_path(pair.key)
        made.cert_chain_pems[0].write_to_path(pair.cert)
        return pair


def locked_key(pair: Pair, directory: Path) -> Pair:
    """The same pair, its key behind a password."""
    locked = directory / "locked.key"
    key = serialization.load_pem_private_key(pair.key.read_bytes(), password=None)
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret-word"),
        )
    )
    return Pair(pair.cert, locked)
