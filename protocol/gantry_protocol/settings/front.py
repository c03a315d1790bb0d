"""Settings that a front applies while it runs.

Its pods have them in a file, which the operator writes from fields of a FrontGroup. All else a
front is told by its environment, which is its pod's and goes with it.
"""

from typing import Final

LIVE_SINCE: Final[dict[str, frozenset[str]]] = {
    "known": frozenset({"connection_age_s", "log_level", "tracing_endpoint", "tracing_ratio"}),
}
"""What images apply while running, by a word for those that do; as of brokers.

An image with an older word is told by its environment what came later, which is a roll.
"""

LIVE: Final = LIVE_SINCE["known"]
"""Settings that a front applies while it runs; it keeps nothing that could depend on one."""
