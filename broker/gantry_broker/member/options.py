"""Options of a group's member, and the watcher that it tells of its role."""

from pathlib import Path
from typing import NamedTuple

from gantry_protocol.headers.controller import LOWEST_ELECTION_PRIORITY

from gantry_broker.clients.core.drain import DrainReport
from gantry_broker.queues import recent_keys
from gantry_broker.replica import DEFAULT_LIMITS, Limits
from gantry_broker.retention.core.rules import RetentionBounds
from gantry_broker.tier.options import TierOptions


class GroupOptions(NamedTuple):
    """The settings of one member of a group.

    Attributes:
        directory: of the group's data, inside the locked data directory.
        advertise: the ip that others use for remoting and replication.
        name: of this broker, for people who read the tier.
        log_scrub_s: in which every byte of the log is compared once; 0 for never.
        priority: see ``Speaker``.
        tier: where the group's tier is; None without one.
        kept: how much of the log is kept where there is no tier.
        repeat_window_ms: see ``RecentKeys``; 0 stores every send.
        repeat_keys: how many of its keys are known.
    """

    cluster: str
    group: str
    directory: Path
    advertise: str
    remoting_port: int
    pod_uid: str | None = None
    log_segment_bytes: int = 1024 * 1024 * 1024
    log_scrub_s: float = 86_400.0
    limits: Limits = DEFAULT_LIMITS
    name: str = ""
    priority: int = LOWEST_ELECTION_PRIORITY
    tier: TierOptions | None = None
    kept: RetentionBounds = RetentionBounds()
    repeat_window_ms: int = recent_keys.WINDOW_MS
    repeat_keys: int = recent_keys.ENTRIES_MAX


class Watcher:
    """An observer of role changes, such as the server's router."""

    def role_changed(self) -> None:
        """The role, the epoch or the master's address may be another."""

    def serving_began(self) -> None:
        """This broker is the serving master now."""

    def cut_off(self) -> None:
        """It is, as far as it knows; but it takes nothing, and its clients should look elsewhere.

        ``role_changed`` follows when it goes on.
        """

    def drain_learned(self) -> None:
        """The controllers may have said something new of the group's drain."""

    def drain_report(self) -> DrainReport | None:
        """The master's word on the group's drain; None where there is none."""
        return None

    def clients_move(self) -> None:
        """It is not any more, and whoever waits for an answer is about to be told so."""

    def serving_will_end(self) -> None:
        """Soon it is not any more, unless nobody takes over; what is in memory goes to the log."""

    def ticked(self) -> None:
        """Time has passed."""

    def serving_ends(self) -> None:
        """It is not any more; the store is still as it was."""
