"""Experiments: faults read from Chaos Mesh manifests, histories, checkers and one-page reports.

Pure wherever something is decided: what a manifest means, when a fault begins and ends, which
commands inject and heal it, whether it bit, and whether a history is correct. Running a command and
writing the journal are the only effects.
"""
