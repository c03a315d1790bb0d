"""The end of a certificate's validity, read from its PEM file.

The standard library tells it of certificates that were verified on a connection, and not of those
that a process shows itself. So the few fields before it are stepped over here (RFC 5280, section
4.1, in DER). What it does not do: verify anything.
"""

from datetime import UTC, datetime

from gantry_protocol.tls.der import SEQUENCE, element, first_certificate, signed_part

_VERSION, _UTC_TIME, _GENERALIZED_TIME = 0xA0, 0x17, 0x18
_BEFORE_VALIDITY = 3  # serial number, signature, issuer


def not_after(pem: str) -> datetime:
    """The end of the first certificate in ``pem``.

    Raises:
        ValueError: there is none, or it does not read.
    """
    der = first_certificate(pem)
    try:
        return _read(der)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("its certificate does not read") from error


def _read(der: bytes) -> datetime:
    at, _ = signed_part(der)
    tag, _, after = element(der, at)
    if tag == _VERSION:
        at = after
    for _ in range(_BEFORE_VALIDITY):
        _, _, at = element(der, at)
    _, at, _ = element(der, at, SEQUENCE)  # the validity
    _, _, at = element(der, at)  # its begin
    tag, begin, end = element(der, at)
    text = der[begin:end].decode("ascii")
    if tag == _UTC_TIME:  # two digits of the year: 1950 to 2049
        text = ("19" if text >= "5" else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("its certificate has an end that does not read")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
