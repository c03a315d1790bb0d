"""The end of a certificate's validity, read from its PEM file.

The standard library tells it of certificates that were verified on a connection, and not of those
that a process shows itself. So the few fields before it are stepped over here (RFC 5280, section
4.1, in DER). What it does not do: verify anything.
"""

import ssl
from datetime import UTC, datetime

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x30, 0xA0, 0x17, 0x18
_BEFORE_VALIDITY = 3  # serial number, signature, issuer


def not_after(pem: str) -> datetime:
    """The end of the first certificate in ``pem``.

    Raises:
        ValueError: there is none, or it does not read.
    """
    begin = pem.find(_BEGIN)
    end = pem.find(_END, begin)
    if begin < 0 or end < 0:
        raise ValueError("it holds no certificate in PEM")
    der = ssl.PEM_cert_to_DER_cert(pem[begin : end + len(_END)])
    try:
        return _read(der)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("its certificate does not read") from error


def _read(der: bytes) -> datetime:
    _, at, _ = _element(der, 0, _SEQUENCE)  # the certificate
    _, at, _ = _element(der, at, _SEQUENCE)  # what is signed of it
    tag, _, after = _element(der, at)
    if tag == _VERSION:
        at = after
    for _ in range(_BEFORE_VALIDITY):
        _, _, at = _element(der, at)
    _, at, _ = _element(der, at, _SEQUENCE)  # the validity
    _, _, at = _element(der, at)  # its begin
    tag, begin, end = _element(der, at)
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = ("19" if text >= "5" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("its certificate has an end that does not read")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _element(der: bytes, at: int, expected: int | None = None) -> tuple[int, int, int]:
    """The tag of the element at ``at``, where its content begins, and where it ends."""
    tag, length, begin = der[at], der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length = int.from_bytes(der[begin : begin + size], "big")
        begin += size
    end = begin + length
    if end > len(der) or (expected is not None and tag != expected):
        raise ValueError("its certificate does not read")
    return tag, begin, end
