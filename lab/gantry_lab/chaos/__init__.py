"""Chaos runs: a cluster, the load on it, faults from a manifest, and the verdict.

Faults, histories and checkers are `gantry_chaos`'s; here they meet a running cluster.
"""
