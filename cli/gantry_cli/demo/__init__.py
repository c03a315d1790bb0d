"""The demonstration: one story, told live, and an account of what a client saw of it."""
