"""``python -m roundwise`` is the command line."""

from roundwise.cli import main

if __name__ == "__main__":
    main(prog_name="roundwise")
