"""The same as `isr-batch views`, for spark-submit."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this folder first on the path, where its files would hide modules of the same names.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from pipelines.cli import main

    main(["views", *sys.argv[1:]])
