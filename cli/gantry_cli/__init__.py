"""The `gantry` command: processes, local clusters, a client, the demonstration.

The only package of the product that imports all components, and it imports each of them when its
command runs.
"""
