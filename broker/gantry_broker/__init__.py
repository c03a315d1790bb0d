"""The broker: one member of a replication group; keeps messages and serves RocketMQ clients."""
