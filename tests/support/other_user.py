"""Processes as the restricted Pod Security Standard has them: any user, nothing but a volume.

The user is unknown to the machine, has no capability and can get none, and finds every file system
but `/proc`, `/dev` and one directory read-only. That needs root, which gives it all away.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

_SANDBOX = """
set -e
mount --bind "$0" "$0"
while read -r _ _ _ _ point _; do
    case $point in /proc*|/sys*|/dev*|"$0") ;; *) mount -o remount,bind,ro "$point" || true ;; esac
done < /proc/self/mountinfo
cd /
exec "$@"
"""


class User(NamedTuple):
    """Who a process is."""

    user: int
    group: int
    volume_group: int

    def command(self, volume: Path, *arguments: str) -> list[str]:
        """`gantry` with these arguments, which can write below `volume` only."""
        sandbox = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SANDBOX]
        rights = [f"--reuid={self.user}", f"--regid={self.group}", f"--groups={self.volume_group}"]
        rights += ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        python = [sys.executable, "-m", "gantry_cli"]
        return [*sandbox, str(volume), "setpriv", *rights, *python, *arguments]

    def environment(self, **settings: str) -> dict[str, str]:
        """What the container of such a process has: a home that is not its own, and no more."""
        kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
        return kept | {"HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"} | settings


IMAGE = User(10001, 10001, 10001)
ASSIGNED = User(1_000_650_000, 0, 1_000_650_000)
"""As OpenShift's restricted-v2 assigns them: the group is root's, and gives no right."""
ASSIGNED_LATER = ASSIGNED._replace(user=1_000_650_777)


@cache
def possible() -> str:
    """Why this machine cannot do it; empty where it can."""
    if os.geteuid() != 0:
        return "only root can become somebody else"
    missing = [program for program in ("unshare", "setpriv") if shutil.which(program) is None]
    if missing:
        return f"{missing[0]} is not installed"
    with volume(ASSIGNED) as directory:
        command = ASSIGNED.command(directory, "--help")
        tried = subprocess.run(
            command, env=ASSIGNED.environment(), capture_output=True, text=True, check=False
        )
    return "" if tried.returncode == 0 else f"no sandbox: {tried.stderr.strip()[-200:]}"


@contextmanager
def volume(user: User) -> Iterator[Path]:
    """A directory as the kubelet gives it to the pod's fsGroup."""
    directory = Path(tempfile.mkdtemp(prefix="gantry-volume-"))
    try:
        os.chown(directory, 0, user.volume_group)
        directory.chmod(0o2775)
        yield directory
    finally:
        shutil.rmtree(directory)
