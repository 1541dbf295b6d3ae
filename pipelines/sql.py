"""Entry point for spark-submit, which does the same as `isr-batch sql`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts the folder of this file first on the path. Its files would hide modules with the same names.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from pipelines.cli import main

    main(["sql", *sys.argv[1:]])
