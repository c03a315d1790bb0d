"""Where a door leads clients, without I/O."""
