"""Everything that crosses a process boundary: frames, headers, bodies, records, admin models."""
