"""Injection of faults, their healing and their proof: commands as data, a thin shell around."""
