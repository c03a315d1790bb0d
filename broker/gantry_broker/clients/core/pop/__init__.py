"""POP apart from who asks: its records, the ledger of what is in flight, receipts."""
