"""The storage boundary, on both sides of which this is known: contract, tables, records.

Nothing here does I/O. Who keeps the contract: ``gantry_broker.member.local_store`` over this
process's own log, ``gantry_broker.remote.store`` over a link to another process.
"""
