"""Rules for every test of the repository."""

import asyncio
import gc
import os
import tempfile
from pathlib import Path

import pytest
from gantry_protocol.quorum_key import write_key
from hypothesis import Phase, settings
from support.parts import is_in_share

# How long one example takes says how busy the machine is, and nothing about the code.
settings.register_profile("gantry", deadline=None)
# Of bugs that are planted nobody reads the smallest example.
ANY_EXAMPLE = (Phase.explicit, Phase.generate)
settings.register_profile("any-example", settings.get_profile("gantry"), phases=ANY_EXAMPLE)
settings.load_profile("gantry")

# Processes that tests start have a key, as those of a cluster do. What a test itself says to a
# quorum shows none, unless it is about that (tests/integration/cli/test_quorum_key.py).
KEY_DIRECTORY = tempfile.TemporaryDirectory(prefix="gantry-key-")
os.environ["GANTRY_QUORUM_KEY_FILE"] = str(write_key(Path(KEY_DIRECTORY.name) / "key"))
os.environ["GANTRY_ALLOW_UNAUTHENTICATED"] = "true"


def pytest_addoption(parser: pytest.Parser) -> None:
    """A share of the tests can be asked for."""
    parser.addoption("--shares", type=int, default=1, help="run one of so many parts")
    parser.addoption("--turn", type=int, default=0, help="which of them; of any size")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the share that was asked for."""
    shares, turn = config.getoption("--shares"), config.getoption("--turn")
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        (kept if is_in_share(item.nodeid, shares, turn) else left).append(item)
    if left:
        items[:] = kept
        config.hook.pytest_deselected(items=left)


def pytest_configure() -> None:
    """Keep looptime from making an event loop nobody closes; look for no garbage in imports.

    Around every test, asynchronous or not, looptime asks the policy for the current loop; on a main
    thread that never had one the policy makes one, whose ResourceWarning fails a later test. A
    thread whose loop was set, be it to None, is told that there is none.
    """
    asyncio.set_event_loop(None)
    gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage from here on, at fewer moments: half a million objects stay.

    Nothing is frozen: the simulator finds the classes of the product among what is looked through.
    """
    gc.set_threshold(10_000, 20, 50)
    gc.enable()


def pytest_unconfigure() -> None:
    """The key is not needed any more."""
    KEY_DIRECTORY.cleanup()
