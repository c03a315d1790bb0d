"""Clients' connections in a process of their own, which outlives the broker beside it.

``control.core.course`` decides where clients are led and when to ask; ``server`` is the process.
"""

from gantry_broker.door.server import DoorServer, serve
from gantry_broker.door.settings import DoorSettings

__all__ = ["DoorServer", "DoorSettings", "serve"]
