"""Trials: a local cluster under load while something is done to it, and an honest account.

The demonstration and the benchmarks are both trials; they differ in what they do and show.
"""
