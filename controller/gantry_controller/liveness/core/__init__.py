"""Who is alive and what follows, without a clock or I/O: times come in as arguments."""
