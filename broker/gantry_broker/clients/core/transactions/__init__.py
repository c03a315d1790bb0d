"""Transactions apart from who asks: their records, which are open, reading them back."""

from gantry_broker.clients.core.transactions.ledger import Ledger, Policy

__all__ = ["Ledger", "Policy"]
