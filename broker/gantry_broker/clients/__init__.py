"""Client requests: sending, pulling, positions, sessions, on one broker group."""

from gantry_broker.clients.processor import ClientProcessor
from gantry_broker.clients.view import GroupView

__all__ = ["ClientProcessor", "GroupView"]
