"""The process: its settings, the groups that it hosts, clients' ports, readiness and metrics."""
