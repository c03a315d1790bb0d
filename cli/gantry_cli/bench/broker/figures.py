"""The metrics of `gantry bench broker`, with unit and decimal places."""

from __future__ import annotations

BENCH = "broker"

UNITS = {
    "messages_per_s": ("1/s", 0),
    "mb_per_s": ("MB/s", 1),
    "p50_ms": ("ms", 2),
    "p99_ms": ("ms", 2),
    "master_cpu_us": ("us", 1),
    "replicas_cpu_us": ("us", 1),
    "generator_cpu_us": ("us", 1),
    "refused_percent": ("%", 2),
    "disk_read_percent": ("%", 0),
    "gap_ms": ("ms", 0),
    "acknowledged": ("1", 0),
    "lost": ("1", 0),
    "duplicated": ("1", 0),
    "kills": ("1", 0),
    "created_s": ("s", 1),
    "restart_s": ("s", 1),
    "rss_mb": ("MB", 0),
    "ratio": ("1", 2),
    "p99_before_ms": ("ms", 2),
    "p99_during_ms": ("ms", 2),
    "seconds": ("s", 2),
}
"""CPU is per message: of the master, of all other replicas together, of the load generator."""
