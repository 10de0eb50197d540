"""``python -m roundwise`` is the command line; ``run`` needs nothing but Roundwise."""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        from roundwise.integrations.running import run

        sys.exit(run(sys.argv[2:]))
    from roundwise.cli import main

    main(prog_name="roundwise")
