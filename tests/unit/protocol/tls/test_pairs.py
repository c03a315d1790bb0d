"""A certificate and a key in memory: whether they serve together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from gantry_protocol.tls.pairs import pair_fault
from support.certificates import Authority, Pair, locked_key

MISMATCH = "its tls.key is not the key of its tls.crt"
UNREAD = "its tls.crt or its tls.key does not read"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Authority(tmp_path_factory.mktemp("authority")).issue("brokers")


def pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_a_pair_serves(pair: Pair) -> None:
    cert, key = pair.cert.read_bytes(), pair.key.read_bytes()
    assert pair_fault(cert, key) is None
    assert pair_fault(cert + key, key + cert) is None, "files may hold more than one thing"


@pytest.mark.parametrize(
    "key",
    [
        pem(ec.generate_private_key(ec.SECP256R1())),
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(rsa.generate_private_key(65537, 2048)),
    ],
    ids=["another", "another curve", "another kind"],
)
def test_a_key_of_another_certificate_is_said_to_be_one(pair: Pair, key: bytes) -> None:
    assert pair_fault(pair.cert.read_bytes(), key) == MISMATCH


def test_what_does_not_read_is_said(pair: Pair, tmp_path: Path) -> None:
    cert, key = pair.cert.read_bytes(), pair.key.read_bytes()
    half = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"
    for pieces in (
        (cert, locked_key(pair, tmp_path).key.read_bytes()),
        (cert, key[: len(key) // 2]),
        (cert + half, key),
        (b"", key),
    ):
        said = pair_fault(*pieces)
        assert said is not None
        assert said.startswith(UNREAD)
        assert "None" not in said
        for line in key.decode().splitlines():
            assert line not in said


def test_nothing_is_left(pair: Pair) -> None:
    cert, key = pair.cert.read_bytes(), pair.key.read_bytes()
    files = Path("/proc/self/fd")
    before = len(list(files.iterdir()))
    for _ in range(5):
        pair_fault(cert, key)
        pair_fault(cert, b"")
    assert len(list(files.iterdir())) == before


def test_where_there_are_no_files_in_memory_nothing_is_known(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object) -> int:
        raise OSError("Function not implemented")

    monkeypatch.setattr(os, "memfd_create", refused)
    assert pair_fault(pair.cert.read_bytes(), b"") is None
