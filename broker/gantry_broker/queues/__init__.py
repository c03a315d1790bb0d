"""Queues, topics and consumer offsets, derived from the commit log; the message store."""

from gantry_broker.queues.message_store import MessageStore

__all__ = ["MessageStore"]
