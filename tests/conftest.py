"""Rules for every test of the repository."""

import asyncio

from hypothesis import settings

# How long one example takes says how busy the machine is, and nothing about the code.
settings.register_profile("gantry", deadline=None)
settings.load_profile("gantry")


def pytest_configure() -> None:
    """Keep looptime from making an event loop nobody closes.

    Around every test, asynchronous or not, looptime asks the policy for the current loop; on a main
    thread that never had one the policy makes one, whose ResourceWarning fails a later test. A
    thread whose loop was set, be it to None, is told that there is none.
    """
    asyncio.set_event_loop(None)
