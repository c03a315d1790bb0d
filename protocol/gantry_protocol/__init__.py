"""Everything that crosses a process boundary: frames, headers, records, admin models, data directories."""
