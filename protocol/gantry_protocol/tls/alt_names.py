"""The URIs among a certificate's alternative names (RFC 5280, section 4.2.1.6, in DER).

For a certificate that this process shows itself the standard library has no reader, and two readers
could read two things. So both sides' are read here. What it does not do: verify anything.
"""

from gantry_protocol.tls.der import SEQUENCE, children, element, signed_part

_ALT_NAMES = bytes((0x55, 0x1D, 0x11))  # 2.5.29.17
_OBJECT_ID, _OCTETS, _EXTENSIONS, _URI = 0x06, 0x04, 0xA3, 0x86
_URI_CHARS_MAX = 2048


def uris_of(der: bytes) -> list[str]:
    """The URIs, in their order.

    Raises:
        ValueError: the certificate does not read.
    """
    try:
        return _uris(der)
    except (IndexError, UnicodeDecodeError) as error:
        raise ValueError("its certificate does not read") from error


def _uris(der: bytes) -> list[str]:
    for tag, at, _ in children(der, *signed_part(der)):
        if tag == _EXTENSIONS:
            _, begin, end = element(der, at, SEQUENCE)
            for _, one, one_end in children(der, begin, end):
                found = _of_extension(der, one, one_end)
                if found is not None:
                    return found
    return []


def _of_extension(der: bytes, begin: int, end: int) -> list[str] | None:
    """Of one extension; None if it is another one."""
    parts = list(children(der, begin, end))  # its identifier, perhaps whether it is critical, value
    identifier, value = parts[0], parts[-1]
    if identifier[0] != _OBJECT_ID or der[identifier[1] : identifier[2]] != _ALT_NAMES:
        return None
    if value[0] != _OCTETS:
        raise ValueError("its certificate does not read")
    _, begin, end = element(der, value[1], SEQUENCE)
    return [
        der[at : min(last, at + _URI_CHARS_MAX)].decode("ascii")
        for tag, at, last in children(der, begin, end)
        if tag == _URI
    ]
