"""The `gantry` command: processes, local clusters, a client, the demonstration and the benchmarks.

The only package that imports all components, and it imports each of them when its command runs.
"""
