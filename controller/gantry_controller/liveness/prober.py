"""Knocks at a broker's own address: opens a connection, notes how that ended, closes it.

Only the answer "nobody listens here" (a TCP reset) is told apart; ``probes`` says what it proves.
"""

from gantry_protocol.errors import ConnectError
from gantry_protocol.remoting.client import RemotingClient

from gantry_controller.liveness.core.probes import Knock

KNOCK_TIMEOUT_S = 0.3  # a reset from anywhere in a cluster takes a few milliseconds


async def knock(address: str) -> Knock:
    """The answer to a connection to ``address`` (``host:port``)."""
    client = RemotingClient()
    try:
        await client.connect(address, KNOCK_TIMEOUT_S)
    except ConnectError as error:
        return Knock.REFUSED if error.refused else Knock.OTHER
    client.abort()
    return Knock.OTHER
