"""What a broker group is to reach."""

from __future__ import annotations

from gantry_cli.bench.broker.figures import BENCH
from gantry_cli.bench.goals import Goal, Layout

GOALS = (
    Goal("send-64-1r", "messages_per_s", "1 KiB sync sends/s, 64 clients, 1 replica", least=20_000),
    Goal("send-64-1r", "p99_ms", "… their p99, ms"),
    Goal("send-64-1r", "master_cpu_us", "… master's CPU per message, µs"),
    Goal("send-64-1r", "generator_cpu_us", "… generator's CPU per message, µs"),
    Goal("send-64-3r", "messages_per_s", "the same, 3 replicas, all in sync", least=12_000),
    Goal("send-64-3r", "p99_ms", "… their p99, ms", most=25),
    Goal("send-64-3r", "master_cpu_us", "… master's CPU per message, µs"),
    Goal("send-64-3r", "replicas_cpu_us", "… both other replicas' CPU per message, µs"),
    Goal("send-64-3r", "generator_cpu_us", "… generator's CPU per message, µs"),
    Goal("batch32-1r", "messages_per_s", "messages/s in batches of 32", least=150_000),
    Goal("batch32-1r", "master_cpu_us", "… master's CPU per message, µs"),
    Goal("pull-hot", "messages_per_s", "pulled messages/s, in memory", least=200_000),
    Goal("pull-hot", "master_cpu_us", "… master's CPU per message, µs"),
    Goal("pull-hot", "generator_cpu_us", "… generator's CPU per message, µs"),
    Goal("pull-cold", "mb_per_s", "pulled from the disk, MB/s", least=100),
    Goal("pull-cold", "disk_read_percent", "… read from the disk, % of that"),
    Goal("queues-1m", "created_s", "a million queues made, s", most=600),
    Goal("queues-1m", "rss_mb", "… memory, MB", most=2048),
    Goal("queues-1m", "restart_s", "… restart, s", most=60),
    Goal("queues-1m", "ratio", "… sends to 10,000 random queues ÷ to one", least=0.5),
    Goal("master-kill", "gap_ms", "SIGKILL of the master: write gap, ms", most=500, worst=1000),
    Goal("master-stop", "gap_ms", "SIGSTOP of the master: write gap, ms", worst=3500),
    Goal("handover", "gap_ms", "hand-over: write gap, ms", worst=500),
    Goal("kills-1000", "kills", "masters killed under load", least=1000),
    Goal("kills-1000", "acknowledged", "… messages acknowledged"),
    Goal("kills-1000", "lost", "… of those lost", most=0, worst=0),
    Goal("catch-up", "mb_per_s", "catch-up of an empty replica, MB/s", least=100),
    Goal("catch-up", "ratio", "… producers' p99 meanwhile ÷ before", most=2),
)

LAYOUT = Layout(
    BENCH,
    ("java-default", "java-all-in-sync"),
    GOALS,
    "the brokers, with every message synced to disk, a controller and the generator share them.",
)
