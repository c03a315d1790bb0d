"""Gantry's data pipeline: what lies in the tier, decoded, judged and reported with Spark."""
