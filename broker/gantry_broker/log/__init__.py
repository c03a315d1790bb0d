"""The commit log: RocketMQ's record layout, with checksums over every flushed byte."""

from gantry_broker.log.commit_log import CommitLog
from gantry_broker.log.errors import (
    CutRefusedError,
    DerivedLostError,
    DiskFullError,
    LogFailedError,
)

__all__ = [
    "CommitLog",
    "CutRefusedError",
    "DerivedLostError",
    "DiskFullError",
    "LogFailedError",
]
