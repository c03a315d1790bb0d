"""How these tests are spread over workers: one by one, except where a file shares what it starts.

Most of them start processes of their own and wait for them, for a second or for ten; handed out by
the file, one worker would have the last long file and the others nothing. (xdist's own mark
`xdist_group` does not reach its scheduler under the newest pytest.)
"""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from support import warm_starts
from support.parts import ROOT, scope_of
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer

# aiohttp reads all certificates that the system trusts when it is imported: a tenth of a second of
# CPU per process, in hundreds of processes that talk to loopback only. These trust a single one,
# whose key nobody has.
os.environ["SSL_CERT_FILE"] = str(ROOT / "tests" / "support" / "authority.pem")


class ByTest(LoadScopeScheduling):
    """Tests go to whoever is free; those of a file with a shared fixture stay together."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)


def pytest_configure() -> None:
    """Let SIGINT mean what it means, and programs begin warm.

    A run in the background ignores SIGINT, and so do all its children.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    warm_starts.install()


def pytest_unconfigure() -> None:
    """Interpreters start as they did."""
    warm_starts.uninstall()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Asked once, in the process that hands the tests out."""
    return ByTest(config, log)
