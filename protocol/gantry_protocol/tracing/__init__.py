"""Traces of OpenTelemetry: whose a span is, what it says, and the way to a collector."""
