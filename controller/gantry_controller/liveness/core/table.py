"""The table of what this node has heard of each broker: heartbeats, connections, pods.

Local memory, never in the log. The table only records; ``rules`` draws the conclusions. Two details
matter to them. A row belongs to the *newest* connection that carried the broker's heartbeats, until
that one has been silent for the time-out; so neither a straggler on an older connection nor the
late close of one says anything about the process on the newer one. And every heartbeat overwrites
the one before, offsets included: a broker that truncated its log must not be believed to be as far
as it was.

The table is never walked. Who fell silent, and who has been silent for so long that he is forgotten
(strangers must not fill the table), comes out of a queue by time, in which each row is touched once
per time-out.
"""

from collections.abc import Iterable, Mapping

import msgspec
from gantry_protocol.types import BrokerId, Epoch, Offset

from gantry_controller.liveness.core.due import DueQueue
from gantry_controller.metadata.events import LOWEST_PRIORITY
from gantry_controller.metadata.state import GroupKey

MemberKey = tuple[str, str, BrokerId]
"""(cluster name, broker name, broker id)."""

FORGET_AFTER_S = 600.0
GONE_PODS_MAX = 4096
ROWS_MAX = 100_000
ROWS_PER_GROUP_MAX = 256
TIER_STATE_MAX_CHARS = 32
TIER_REASON_MAX_CHARS = 256


class Tier(msgspec.Struct, frozen=True, gc=False):
    """A broker's report on its group's tier; like the log end, never an event.

    Attributes:
        state: one word, at most ``TIER_STATE_MAX_CHARS`` characters.
        reason: at most ``TIER_REASON_MAX_CHARS`` characters; empty while all is well.
    """

    state: str
    epoch: int | None = None
    committed_offset: int | None = None
    lag_ms: int | None = None
    reason: str = ""
    version: int | None = None

    @property
    def news(self) -> tuple[str, int | None, bool, bool]:
        """The changes that watchers are told at once; the rest they read when they look."""
        return (self.state, self.epoch, self.committed_offset is not None, bool(self.reason))


class DrainReport(msgspec.Struct, frozen=True, gc=False):
    """A master's report on what is left of its group, which is being drained.

    ``waits_for`` has at most ``TIER_REASON_MAX_CHARS`` characters.
    """

    done: bool
    unread: int
    parked: int
    transactions: int
    waits_for: str


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """One heartbeat, or the registration of a process, which says as much.

    Attributes:
        confirm_epoch: under which the last byte below ``confirm_offset`` was written, -1 if unsaid.
    """

    broker_id: BrokerId
    timeout_s: float
    incarnation: str = ""
    epoch: Epoch = Epoch(-1)
    max_offset: Offset = Offset(-1)
    confirm_offset: Offset = Offset(-1)
    confirm_epoch: Epoch = Epoch(-1)
    priority: int = LOWEST_PRIORITY
    draining: bool = False
    pod_uid: str | None = None
    tier: Tier | None = None
    log_start: Offset = Offset(-1)
    disk_stuck: str = ""
    log_damage: str = ""
    drain: DrainReport | None = None
    last_write_ms: int | None = None
    first_write_ms: int | None = None
    settings: str = ""
    settings_refused: str = ""


class BrokerSigns(msgspec.Struct, gc=False):
    """Knowledge of one broker id.

    Attributes:
        beat: the last heartbeat.
        seen_s: when it came.
        connection: the connection it came on; None for what another controller passed on.
        closed: that connection is gone.
        refused: since then its address has twice refused to be connected to.
        shown: what watchers are told of it: alive, draining, the tier, a stuck disk, damage,
            whether its group is drained, when it was written to first in its mastership, and the
            settings that it has.
    """

    beat: Heartbeat
    seen_s: float
    connection: int | None
    closed: bool = False
    refused: bool = False
    shown: tuple[object, ...] = (False,)

    @property
    def silent_from_s(self) -> float:
        """After this time the broker, if it is not heard again, has exceeded its time-out."""
        return self.seen_s + self.beat.timeout_s

    @property
    def connected(self) -> bool:
        """Whether the broker holds a connection to this node right now."""
        return self.connection is not None and not self.closed


_NO_ROWS: dict[BrokerId, BrokerSigns] = {}


class HeartbeatTable:
    """All rows of one controller node.

    Attributes:
        alive: rows that have neither fallen silent, as of the last ``pass_time``, nor been refused.
        refused_rows: heartbeats dropped because the table was full.
    """

    def __init__(self) -> None:
        self.alive = 0
        self.refused_rows = 0
        self._groups: dict[GroupKey, dict[BrokerId, BrokerSigns]] = {}
        self._by_connection: dict[int, set[MemberKey]] = {}
        self._gone_pods: dict[str, float] = {}  # oldest word first
        self._registered: dict[GroupKey, dict[BrokerId, float]] = {}
        self._rows = 0
        self._closed: set[MemberKey] = set()  # whose connection is gone
        self._due: DueQueue[MemberKey] = DueQueue()  # to be told silent, then to be forgotten
        self._news: set[GroupKey] = set()

    def rows_of(self, key: GroupKey) -> Mapping[BrokerId, BrokerSigns]:
        """The rows of one group's brokers, for a look between two events."""
        return self._groups.get(key, _NO_ROWS)

    def row(self, key: GroupKey, broker_id: BrokerId) -> BrokerSigns | None:
        """The row of one broker id."""
        return self._groups.get(key, _NO_ROWS).get(broker_id)

    def closed_members(self) -> list[MemberKey]:
        """Everybody whose connection is gone, sorted."""
        return sorted(self._closed)

    def heard(
        self, key: GroupKey, beat: Heartbeat, *, now_s: float, connection: int | None
    ) -> bool:
        """Records ``beat``; False if it says nothing new, or the table is full.

        ``connection`` numbers grow in the order connections were accepted. None is for what another
        controller passed on, which counts only if it comes from a process not heard of before.
        """
        rows = self._groups.get(key)
        row = None if rows is None else rows.get(beat.broker_id)
        if row is None:
            return self._first(key, beat, now_s, connection)
        if connection != row.connection:
            silent = now_s > row.silent_from_s
            if not (silent or _is_newer(row, beat, connection)):
                return False
            if row.connection is not None:
                self._unlink(row.connection, (*key, beat.broker_id))
            if connection is not None:
                self._link(connection, (*key, beat.broker_id))
        if row.closed:
            self._closed.discard((*key, beat.broker_id))
        old = row.beat
        sooner = not row.shown[0] or beat.timeout_s < old.timeout_s
        row.beat = beat
        row.seen_s = now_s
        row.connection = connection
        row.closed = False
        row.refused = False
        is_trouble = beat.disk_stuck != old.disk_stuck or beat.log_damage != old.log_damage
        is_other = (
            beat.draining is not old.draining
            or beat.drain != old.drain
            or beat.first_write_ms != old.first_write_ms
            or beat.settings != old.settings
            or beat.settings_refused != old.settings_refused
        )
        if sooner or is_other or beat.tier != old.tier or is_trouble:
            self._show(key, row, alive=True)
        if sooner:
            self._due.put((*key, beat.broker_id), row.silent_from_s)
        return True

    def _first(self, key: GroupKey, beat: Heartbeat, now_s: float, connection: int | None) -> bool:
        rows = self._groups.get(key, {})
        if self._rows >= ROWS_MAX or len(rows) >= ROWS_PER_GROUP_MAX:
            self.refused_rows += 1
            return False
        row = rows[beat.broker_id] = BrokerSigns(beat, now_s, connection)
        self._groups[key] = rows
        self._rows += 1
        self._show(key, row, alive=True)
        self._due.put((*key, beat.broker_id), row.silent_from_s)
        if connection is not None:
            self._link(connection, (*key, beat.broker_id))
        return True

    def closed(self, connection: int) -> list[MemberKey]:
        """Records that ``connection`` is gone; returns the brokers whose newest it was, sorted."""
        members = sorted(self._by_connection.pop(connection, ()))
        for cluster, name, broker_id in members:
            row = self._groups[cluster, name][broker_id]
            assert row.connection == connection, (connection, row.connection)
            row.closed = True
        self._closed.update(members)
        return members

    def refuse(self, member: MemberKey, connection: int) -> bool:
        """Records two refused re-connections; False if the broker has been heard since."""
        cluster, name, broker_id = member
        row = self.row((cluster, name), broker_id)
        if row is None or not row.closed or row.connection != connection:
            return False
        row.refused = True
        self._show((cluster, name), row, alive=False)
        return True

    def pod_is_gone(self, pod_uid: str, now_s: float) -> None:
        """Records the operator's word; a later heartbeat of that pod overrides it."""
        self._gone_pods.pop(pod_uid, None)
        self._gone_pods[pod_uid] = now_s
        while len(self._gone_pods) > GONE_PODS_MAX:
            self._gone_pods.pop(next(iter(self._gone_pods)))

    def gone_since(self, pod_uid: str | None) -> float | None:
        """The time at which the operator said that the pod is gone."""
        return None if pod_uid is None else self._gone_pods.get(pod_uid)

    def registered(self, key: GroupKey, broker_id: BrokerId, now_s: float) -> None:
        """Records when this node learnt that a process registered under ``broker_id``."""
        times = self._registered.get(key)
        if times is None:
            times = self._registered[key] = {}
        times[broker_id] = now_s

    def registered_at(self, key: GroupKey, broker_id: BrokerId) -> float | None:
        """The time at which this node learnt of the member's last registration."""
        times = self._registered.get(key)
        return None if times is None else times.get(broker_id)

    def keep_only(self, key: GroupKey, broker_ids: Iterable[BrokerId]) -> None:
        """Forgets what is known of ids that are not members of the group any more."""
        kept = set(broker_ids)
        for broker_id in [item for item in self._groups.get(key, {}) if item not in kept]:
            self._forget(key, broker_id)
        times = self._registered.get(key, {})
        for broker_id in [time for time in times if time not in kept]:
            del times[broker_id]
        if not times:
            self._registered.pop(key, None)

    def pass_time(self, now_s: float, limit: int) -> None:
        """Looks at up to ``limit`` rows whose time-out, or time to be forgotten, is due."""
        for member in self._due.take(now_s, limit):
            cluster, name, broker_id = member
            row = self._groups[cluster, name][broker_id]
            if now_s > row.seen_s + FORGET_AFTER_S:
                self._forget((cluster, name), broker_id)
            elif now_s > row.silent_from_s:
                self._show((cluster, name), row, alive=False)
                self._due.put(member, row.seen_s + FORGET_AFTER_S)
            else:
                self._due.put(member, row.silent_from_s)

    def take_news(self) -> set[GroupKey]:
        """Groups with a row that watchers are to be told other things of, since the last call."""
        news, self._news = self._news, set()
        return news

    def _show(self, key: GroupKey, row: BrokerSigns, *, alive: bool) -> None:
        tier = row.beat.tier
        stuck, damaged = bool(row.beat.disk_stuck), bool(row.beat.log_damage)
        drain = None if row.beat.drain is None else row.beat.drain.done
        news = None if tier is None else tier.news
        shown = (
            alive,
            row.beat.draining,
            news,
            stuck,
            damaged,
            drain,
            row.beat.first_write_ms,
            row.beat.settings,
            row.beat.settings_refused,
        )
        if shown != row.shown:
            self.alive += alive - bool(row.shown[0])
            row.shown = shown
            self._news.add(key)

    def _forget(self, key: GroupKey, broker_id: BrokerId) -> None:
        rows = self._groups[key]
        row = rows.pop(broker_id)
        self._rows -= 1
        self.alive -= bool(row.shown[0])
        self._closed.discard((*key, broker_id))
        self._due.drop((*key, broker_id))
        if not rows:
            del self._groups[key]
        if row.connection is not None:
            self._unlink(row.connection, (*key, broker_id))

    def _link(self, connection: int, member: MemberKey) -> None:
        self._by_connection.setdefault(connection, set()).add(member)

    def _unlink(self, connection: int, member: MemberKey) -> None:
        members = self._by_connection.get(connection)
        if members is not None:
            members.discard(member)
            if not members:
                del self._by_connection[connection]


def _is_newer(row: BrokerSigns, beat: Heartbeat, connection: int | None) -> bool:
    """Whether a beat on another connection than the row's is about a later time."""
    if connection is None or row.connection is None:
        return connection is not None or beat.incarnation != row.beat.incarnation
    return connection > row.connection or row.closed
