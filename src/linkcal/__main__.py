"""``python -m linkcal``: the command line."""

import sys

from linkcal.cli import main

if __name__ == "__main__":
    sys.exit(main())
