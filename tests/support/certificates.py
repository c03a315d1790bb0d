"""Certificates for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from gantry_protocol.member_tls.settings import MemberTlsSettings
from gantry_protocol.tls.settings import TlsMode


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


class MemberAuthority:
    """An authority whose certificates name members.

    Attributes:
        file: its certificate.
    """

    def __init__(self, directory: Path, name: str = "members") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.now(UTC)
        made = (
            self._builder(self._name, self._key, now - timedelta(days=2), now + timedelta(days=99))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(made.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *uris: str, into: Pair | None = None, ends: timedelta = timedelta(days=30)
    ) -> Pair:
        """A certificate with ``uris`` among its names, in files of that name or of another one."""
        pair = into or Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = [x509.DNSName("member.test"), *map(x509.UniformResourceIdentifier, uris)]
        made = (
            self._builder(subject, key, now - timedelta(days=2), now + ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        key_pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        for file, data in (
            (pair.key, key_pem),
            (pair.cert, made.public_bytes(serialization.Encoding.PEM)),
        ):
            file.with_suffix(".new").write_bytes(data)
            file.with_suffix(".new").replace(file)
        return pair

    def settings(
        self, name: str, *uris: str, mode: str | None = None, **more: Any
    ) -> MemberTlsSettings:
        """Settings of a member with a certificate of this authority."""
        pair = self.issue(name, *uris, **more)
        return MemberTlsSettings(
            member_tls_cert_file=pair.cert,
            member_tls_key_file=pair.key,
            member_tls_ca_file=self.file,
            member_tls_mode=None if mode is None else TlsMode(mode),
        )

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(ends)
        )
