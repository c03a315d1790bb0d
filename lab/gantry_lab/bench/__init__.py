"""Benchmarks on a local cluster: what is measured on this machine, printed as it was measured."""
