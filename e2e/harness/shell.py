"""Running other programs: bounded in time, and loud when they fail."""

from __future__ import annotations

import subprocess

TIMEOUT_S = 60.0


class CommandError(Exception):
    """A program failed; the text is its command line and what it said."""


def run(*argv: str, stdin: str | None = None, timeout_s: float = TIMEOUT_S) -> str:
    """Standard output of a program.

    Raises:
        CommandError: it is missing, failed, or took longer than `timeout_s`.
    """
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CommandError(f"{' '.join(argv)}: {error}") from error
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip()
        raise CommandError(f"{' '.join(argv)}: exit {done.returncode}: {said}")
    return done.stdout
