"""`gantry_lab bench controller`: a quorum of three processes, the load on it, and its failures."""
