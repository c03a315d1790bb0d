"""Room on the disk: how much of a log is kept, what of its beginning goes, when sends are refused.

``core`` decides and does no I/O.
"""
