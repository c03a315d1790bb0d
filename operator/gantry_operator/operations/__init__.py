"""Operations that people ask for by a command: one field of a BrokerGroup each, and the wait."""
