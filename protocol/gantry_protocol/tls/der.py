"""Steps over the elements of a certificate in DER (X.690), for those few fields that are read."""

import ssl
from collections.abc import Iterator

SEQUENCE = 0x30
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"

Element = tuple[int, int, int]
"""Its tag, where its content begins, and where it ends."""


def first_certificate(pem: str) -> bytes:
    """The first certificate in ``pem``.

    Raises:
        ValueError: there is none.
    """
    begin = pem.find(_BEGIN)
    end = pem.find(_END, begin)
    if begin < 0 or end < 0:
        raise ValueError("it holds no certificate in PEM")
    return ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)])


def signed_part(der: bytes) -> tuple[int, int]:
    """The content of what is signed of a certificate: where it begins and ends."""
    _, begin, _ = element(der, 0, SEQUENCE)
    _, begin, end = element(der, begin, SEQUENCE)
    return begin, end


def children(der: bytes, begin: int, end: int) -> Iterator[Element]:
    """The elements between ``begin`` and ``end``."""
    while begin < end:
        found = element(der, begin)
        yield found
        begin = found[2]


def element(der: bytes, at: int, expected: int | None = None) -> Element:
    """The element at ``at``.

    Raises:
        ValueError: it is longer than what holds it, or not the expected one.
    """
    tag, length, begin = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[begin : begin + size], "big")
        begin += size
    end = begin + length
    if end > len(der) or (expected is not None and tag != expected):
        raise ValueError("its certificate does not read")
    return tag, begin, end
