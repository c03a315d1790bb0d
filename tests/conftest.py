"""Rules for every test of the repository."""

import asyncio


def pytest_configure() -> None:
    """Keep looptime from making an event loop nobody closes.

    Around every test, asynchronous or not, looptime asks the policy for the current loop; on a main
    thread that never had one the policy makes one, whose ResourceWarning fails a later test. A
    thread whose loop was set, be it to None, is told that there is none.
    """
    asyncio.set_event_loop(None)
