"""Certificates made by ``openssl``, which is there wherever Python's ``ssl`` is."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


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
        self.file, self._key = directory / f"{name}.pem", directory / f"{name}.key"
        subject = ("-x509", "-days", "2", "-subj", f"/CN={name}")
        _run("req", *subject, *_KEY, "-keyout", self._key, "-out", self.file)

    def issue(self, name: str, *, into: Pair | None = None, days: int = 1) -> Pair:
        """A certificate for ``name``, in files of that name or in those of another one."""
        pair = into or Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        wish, extensions = self._directory / f"{name}.csr", self._directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName=DNS:{name}\n")
        _run("req", "-subj", f"/CN={name}", *_KEY, "-keyout", pair.key, "-out", wish)
        _run(
            *("x509", "-req", "-in", wish, "-CA", self.file, "-CAkey", self._key),
            *("-CAcreateserial", "-days", str(days), "-extfile", extensions, "-out", pair.cert),
        )
        return pair


def locked_key(pair: Pair, directory: Path) -> Pair:
    """The same pair, its key behind a password."""
    locked = directory / "locked.key"
    _run("pkey", "-in", pair.key, "-aes128", "-passout", "pass:secret-word", "-out", locked)
    return Pair(pair.cert, locked)


def _run(*words: str | Path) -> None:
    subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=60)
