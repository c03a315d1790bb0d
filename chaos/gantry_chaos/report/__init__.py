"""Reports: one HTML page per run, with everything in it."""
