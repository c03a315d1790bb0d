"""A certificate and a private key that are in memory: whether they serve together.

For a process that looks at a Secret which others serve from. OpenSSL judges them exactly as it does
where they are served, and the standard library hands it files only. So they are given to it as
files of the kernel's memory (`memfd_create`), which have no name and end with this function.

Rule protected: no byte of a key is on a disk, or in what is returned: that is fixed words, and a
reason of OpenSSL's list.
"""

import contextlib
import os
import ssl
import sys
from collections.abc import Iterator

MISMATCHES = frozenset({"KEY_VALUES_MISMATCH", "NO_CERTIFICATE_ASSIGNED"})
"""Reasons of OpenSSL: another key of the certificate's kind, and one of another kind."""


def pair_fault(cert: bytes, key: bytes) -> str | None:
    """The fault of a certificate and a private key, both in PEM, for people; None: none is known.

    Nothing is known, besides, where there are no files in memory: elsewhere than on Linux.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        with _in_memory(cert) as cert_file, _in_memory(key) as key_file:
            # With a password, a key that needs one would be asked for at the terminal.
            context.load_cert_chain(cert_file, key_file, password="")
    except ssl.SSLError as error:  # before OSError, which it is one of
        if error.reason in MISMATCHES:
            return "its tls.key is not the key of its tls.crt"
        return f"its tls.crt or its tls.key does not read{because(error)}"
    except OSError:
        return None
    return None


def because(error: ssl.SSLError) -> str:
    """The reason of OpenSSL in brackets; nothing where it gives none."""
    return f" ({error.reason})" if error.reason else ""


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """A file that holds ``data``, by a path that only this process can open.

    Raises:
        OSError: there is none to be had.
    """
    if sys.platform != "linux":
        raise OSError("no files in memory")
    file = os.memfd_create("gantry-tls", os.MFD_CLOEXEC)
    try:
        with open(file, "wb", closefd=False) as opened:
            opened.write(data)
        yield f"/proc/self/fd/{file}"
    finally:
        os.close(file)
