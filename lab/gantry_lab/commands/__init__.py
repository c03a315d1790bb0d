"""The commands of the workshop, one module each."""
