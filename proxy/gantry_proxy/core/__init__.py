"""The meaning of gRPC's requests in RocketMQ's older protocol, and back. Pure."""
