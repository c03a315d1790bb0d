"""The controller: an async Raft service that owns metadata, elects masters and serves routes."""
