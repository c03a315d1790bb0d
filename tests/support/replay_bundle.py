"""`gantry kube replay` in the test's own process."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner, Result
from gantry_cli.commands.replay import UnusableBundleError, replay


def replay_bundle(path: Path, *args: str) -> tuple[int, str]:
    """Exit code, and standard output or the error's sentence."""
    done: Result = CliRunner().invoke(replay, [str(path), *args], standalone_mode=False)
    if isinstance(done.exception, UnusableBundleError):
        assert done.stdout == ""
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None, done.exception
    return int(done.return_value or 0), done.stdout
