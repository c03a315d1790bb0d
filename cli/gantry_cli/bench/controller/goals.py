"""What a controller quorum is to reach."""

from __future__ import annotations

from gantry_cli.bench.controller.figures import BENCH
from gantry_cli.bench.goals import Goal, Layout

GOALS = (
    Goal("write-64x1", "ops_per_s", "writes/s, 64 clients × 1 outstanding", least=20_000),
    Goal("write-64x1", "p99_ms", "… their p99, ms", most=10),
    Goal("write-64x1", "leader_cpu_us", "… leader's CPU per write, µs"),
    Goal("write-64x1", "followers_cpu_us", "… both followers' CPU per write, µs"),
    Goal("write-64x1", "generator_cpu_percent", "… generator's share of one core, %"),
    Goal("write-64x16", "ops_per_s", "writes/s, 64 × 16", least=60_000),
    Goal("write-64x16", "p99_ms", "… their p99, ms"),
    Goal("write-64x16", "leader_cpu_us", "… leader's CPU per write, µs"),
    Goal("write-64x16", "followers_cpu_us", "… both followers' CPU per write, µs"),
    Goal("write-64x16", "generator_cpu_percent", "… generator's share of one core, %"),
    Goal("readindex-64x16", "ops_per_s", "linearizable reads/s, 64 × 16", least=60_000),
    Goal("readindex-64x16", "leader_cpu_us", "… leader's CPU per read, µs"),
    Goal("lease-64x16", "ops_per_s", "… by lease"),
    Goal("follower-64x16", "ops_per_s", "… at the followers"),
    Goal("follower-64x16", "spared_percent", "… leader's CPU per read taken away, %", least=60),
    Goal("follower-64x16", "writes_kept_percent", "writes kept under that storm, %", least=90),
    Goal("serial-64x1", "ops_per_s", "writes/s, 64 × 1, old design (serial)"),
    Goal("new-over-serial-64x1", "ratio", "new ÷ serial, 64 clients", least=10),
    Goal("leader-kill", "gap_ms", "SIGKILL of the leader → next write, ms", most=400, worst=1000),
    Goal("leader-stop", "gap_ms", "SIGSTOP of the leader → next write, ms", most=1500, worst=2500),
    Goal("restart-100k", "seconds", "restart with 100,000 groups, s", most=5),
    Goal("restart-100k", "rss_mb", "… memory, MB", most=600),
    Goal("restart-100k", "pause_p99_ms", "… pauses for the snapshot, p99 below, ms", most=5),
    Goal("heartbeat-10k", "leader_cpu_percent", "10,000 heartbeats/s: leader, % of core", most=25),
    Goal("heartbeat-10k", "ratio", "… p99 of writes to without", most=2),
    Goal("groups-1k", "ratio", "throughput with 1,000 groups ÷ with 1", least=0.8),
    Goal("groups-100k", "ratio", "throughput with 100,000 groups ÷ with 1", least=0.8),
    Goal("groups-capacity", "groups", "most groups at p99 of writes up to 50 ms", times=10),
    Goal("groups-capacity", "time_limit_reached", "… 1: the time limit ended the search"),
    Goal("mass-failover", "seconds", "1,000 masters die → last group has a new one, s", most=2),
)

LAYOUT = Layout(
    BENCH,
    ("java-dledger", "java-jraft"),
    GOALS,
    "three controllers, with every write synced to disk, and the generator share them.",
)
