"""`python -m gantry_lab`."""

from gantry_lab.main import main

if __name__ == "__main__":
    main()
