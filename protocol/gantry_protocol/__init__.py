"""What crosses a process boundary: frames, headers, bodies, records, admin models, processes."""
