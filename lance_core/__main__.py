"""Run the command line: ``python -m lance_core COMMAND``, the same as ``lance-core COMMAND``."""

from __future__ import annotations

import sys

from lance_core.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
