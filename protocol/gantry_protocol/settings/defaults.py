"""Defaults that pure code takes as well as the definitions; plain values, each with its reason."""

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""RocketMQ's messageDelayLevel."""

TRANSACTION_TIMEOUT_S = 6
TRANSACTION_CHECK_INTERVAL_S = 30
TRANSACTION_CHECK_MAX = 15
"""RocketMQ's transactionTimeOut, transactionCheckInterval and transactionCheckMax."""

DISK_REFUSE_PERCENT = 90.0
DISK_TAKE_PERCENT = 85.0
DISK_SPARE_BYTES = 8 * 1024**3

TIER_PACK_BYTES = 64 * 1024 * 1024
TIER_LINGER_MS = 30_000
TIER_RETRY_MAX_MS = 30_000

ELECTION_TIMEOUT_MS = 400

READ_LAG_MAX = 10_000
"""Entries; applied in about a tenth of a second."""

SNAPSHOT_LOG_BYTES = 16 * 1024 * 1024
"""A restart replays this much, or twice the snapshot if that is more (``snapshots.due_at``).

One entry costs 10 to 17 us of CPU to read, check and apply, and a change of a sync-state set takes
350 bytes of log: 30 to 75 ms per MiB, so half a second to a little more than one. Four times as
much, as it was before, took seconds where other work wants the cores. Less would gain little: the
snapshot of a few groups costs nothing, and that of many is not taken more often for it.
"""
SNAPSHOT_MARGIN_ENTRIES = 10_000

RECORDED_BYTES = 4 * 1024 * 1024
"""Steps of a core that a process keeps for whoever takes a support bundle."""
