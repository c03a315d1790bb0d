"""How faults are brought about, healed and proved: commands as data, and a thin shell around."""
