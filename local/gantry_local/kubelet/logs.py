"""Log files of containers: one for the current run, one for the run before, both bounded."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MAX_FILE_BYTES: Final = 16 * 1024 * 1024
MAX_DIRECTORIES: Final = 200
"""Pods whose logs are kept, newest first; generated pod names would fill the disk otherwise."""
MAX_WORDS_BYTES: Final = 2048
MAX_WORDS_LINES: Final = 80
"""Of a log in a termination message; the kubelet's own limits."""
_FOLLOW_POLL_S: Final = 0.1
_CHUNK_BYTES: Final = 64 * 1024


class Logs:
    """Log files below one directory, by pod name, so that they outlive the pod."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def current(self, namespace: str, pod: str, container: str) -> Path:
        """The file of the running (or last) run."""
        return self._directory / f"{namespace}_{pod}" / f"{container}.log"

    def previous(self, namespace: str, pod: str, container: str) -> Path:
        """The file of the run before."""
        return self.current(namespace, pod, container).with_suffix(".previous.log")

    def begin(self, namespace: str, pod: str, container: str) -> Path:
        """A fresh file for a new run; the last run's becomes the previous one."""
        path = self.current(namespace, pod, container)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            path.replace(self.previous(namespace, pod, container))
        path.touch()
        return path

    def trim(self) -> None:
        """Cut files that have grown too long, and drop the logs of pods long gone."""
        directories = sorted(
            (entry for entry in self._directory.glob("*") if entry.is_dir()),
            key=lambda entry: entry.stat().st_mtime,
            reverse=True,
        )
        for stale in directories[MAX_DIRECTORIES:]:
            shutil.rmtree(stale, ignore_errors=True)
        for directory in directories[:MAX_DIRECTORIES]:
            for path in directory.glob("*.log"):
                if path.stat().st_size > MAX_FILE_BYTES:
                    _cut(path)


def _cut(path: Path) -> None:
    """Keep the newest half beside, empty the file under its (appending) writer."""
    with path.open("r+b") as file:
        file.seek(-MAX_FILE_BYTES // 2, 2)
        path.with_suffix(".previous.log").write_bytes(file.read())
        file.truncate(0)


def tail(path: Path, lines: int | None) -> bytes:
    """The last lines of a file; None means all of it. A missing file is empty."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return b""
    if lines is None:
        return content
    kept = content.splitlines(keepends=True)[-lines:] if lines else []
    return b"".join(kept)


def last_words(path: Path) -> str:
    """The end of a file as a termination message: at most 2,048 bytes and 80 lines.

    A missing file is empty.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_WORDS_BYTES))
            lines = file.read().splitlines(keepends=True)[-MAX_WORDS_LINES:]
    except FileNotFoundError:
        return ""
    return b"".join(lines).decode(errors="replace")


async def follow(path: Path, lines: int | None) -> AsyncIterator[bytes]:
    """The tail, then what is appended, run after run, until cancelled."""
    content = tail(path, lines)
    position, inode = _place(path)
    yield content
    while True:
        await asyncio.sleep(_FOLLOW_POLL_S)
        size, now = _place(path)
        if now != inode or size < position:  # a new run, or cut
            position, inode = 0, now
        while position < size:
            with path.open("rb") as file:
                file.seek(position)
                chunk = file.read(_CHUNK_BYTES)
            if not chunk:
                break
            position += len(chunk)
            yield chunk


def _place(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_size, status.st_ino
