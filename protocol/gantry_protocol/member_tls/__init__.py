"""Mutual TLS between the members of a cluster: names in certificates, contexts, both sides."""
