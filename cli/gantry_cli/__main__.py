"""`python -m gantry_cli` is the `gantry` command; pods of a local cluster are started this way."""

from gantry_cli.main import main

if __name__ == "__main__":
    main()
