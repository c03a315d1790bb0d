"""The decisions of a door, without I/O."""
