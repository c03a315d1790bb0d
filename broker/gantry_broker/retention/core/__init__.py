"""How much of a log is kept, as plain functions of what is known of it."""
