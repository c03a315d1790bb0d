"""The `gantry` command. The only package that imports all others, and only when a command needs them."""
