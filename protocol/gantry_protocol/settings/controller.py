"""Settings of a controller, as people make them; all are in `spec.config` of a ControllerGroup."""

from typing import Final

from pydantic import Field

from gantry_protocol.settings import defaults
from gantry_protocol.settings.tracing import TracedProcess


class ControllerTuning(TracedProcess):
    """The working of a controller, whoever it is."""

    election_priority: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="Leadership goes to a voter with a higher number than the leader's, once that "
        "one has kept up for a while. By default all are equal.",
    )
    election_timeout_ms: int = Field(
        default=defaults.ELECTION_TIMEOUT_MS,
        ge=100,
        le=60_000,
        description="A follower that hears no leader for one to two times this stands for "
        "election.",
    )
    read_lag_max: int = Field(
        default=defaults.READ_LAG_MAX,
        ge=0,
        le=1_000_000_000,
        description="A follower that has more committed entries than this still to apply sends "
        "readers to the leader.",
    )
    snapshot_log_bytes: int = Field(
        default=defaults.SNAPSHOT_LOG_BYTES,
        ge=64 * 1024,
        le=16 * 1024**3,
        description="A node takes a snapshot of its state, and lets go of the log before it, when "
        "this many bytes of log were applied since the last one, and twice as many as that one "
        "has. A restart replays about as much; 16 MiB take a second.",
    )
    snapshot_margin_entries: int = Field(
        default=defaults.SNAPSHOT_MARGIN_ENTRIES,
        ge=0,
        le=10_000_000,
        description="Log entries kept although a snapshot covers them, so that a follower that is "
        "a little late gets these and not the whole state.",
    )
    recorded_bytes: int = Field(
        default=defaults.RECORDED_BYTES,
        ge=0,
        le=32 * 1024**2,
        description="Memory for the last steps of the Raft core, which kubectl gantry report puts "
        "into its bundle and kubectl gantry replay takes again. At least 262144 are of use. 0: "
        "none are kept.",
    )
    heartbeat_timeout_ms: int = Field(
        default=2500,
        ge=100,
        le=600_000,
        description="Silence after which a broker that did not state its own time-out counts as "
        "gone.",
    )
    spread_masters: bool = Field(
        default=True,
        description="Processes that host the same groups are to lead equally many, or one more: "
        "masterships move, two at a time, to a process that came back. What a person moved stays "
        "for five minutes.",
    )


LIVE_SINCE: Final[dict[str, frozenset[str]]] = {
    "known": frozenset({"log_level", "tracing_endpoint"}),
}
"""What images apply while running, by a word for those that do; as of brokers."""

LIVE: Final = LIVE_SINCE["known"]
"""Settings that a controller applies while it runs; as those of brokers.

Nothing here that elections, the log or another member's answer depends on.
"""
