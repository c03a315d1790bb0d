"""Steps of the Raft core as plain data: recorded while it runs, made again from a bundle; pure."""
