"""The commands, one module each; `gantry_cli.main` knows them by name and imports them late."""
