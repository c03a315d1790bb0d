"""Help for people whose cluster is not well: bundles, logs, checks; all by their own rights."""
