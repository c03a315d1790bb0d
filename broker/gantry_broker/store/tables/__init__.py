"""The tables that follow from a group's log: topics and consumer offsets, and their records.

Plain data without I/O, known on both sides of the storage boundary: below it they are kept for
checkpoints, above it they answer clients.
"""
