"""File descriptors: as many as the system lets a process have, and how many may go to clients.

A process without a free descriptor cannot open the next segment of its log, so what clients take is
bounded by what has to be left.
"""

import resource

FOR_THE_REST = 256  # log segments, peers, HTTP, connections that the process makes itself
FOR_CLIENTS_MIN = 16


def raise_limit() -> None:
    """Lift the soft limit of open files to the hard one; what cannot be lifted must do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return  # a platform whose true ceiling is lower


def for_clients(wanted: int) -> int:
    """``wanted``, or as many as the limit of open files leaves after ``FOR_THE_REST``."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, max(FOR_CLIENTS_MIN, soft - FOR_THE_REST))
