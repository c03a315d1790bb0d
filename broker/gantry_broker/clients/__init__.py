"""Client requests: sending, pulling, positions, sessions, on one broker group."""

from gantry_broker.clients.processor import ClientProcessor
from gantry_broker.clients.view import GroupView, Refusal, SendOutcome

__all__ = ["ClientProcessor", "GroupView", "Refusal", "SendOutcome"]
