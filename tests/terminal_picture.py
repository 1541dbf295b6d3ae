"""docs/images/terminal.svg: what a run on one of the samples looks like in a terminal.

``python -m tests.terminal_picture`` makes it.
"""

import re
import shlex
import tempfile
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from pipelines import cli, output

if TYPE_CHECKING:
    from collections.abc import Iterator

PICTURE: Final = Path(__file__).parents[1] / "docs" / "images" / "terminal.svg"
COMMAND: Final = "isr-batch run --logs data/samples/leader-stop --lake build/lake"
WIDTH: Final = 132
# The letters are the reader's own: a picture in a page may not ask for any.
_FORMAT: Final = re.sub(r"@font-face {{.*?}}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main() -> None:
    """Run the command in a terminal that remembers."""
    terminal = Console(record=True, force_terminal=True, width=WIDTH, file=StringIO(), markup=False, highlight=False)

    @contextmanager
    def no_bar(*_: object) -> "Iterator[None]":
        yield

    def one_terminal(*_: object, **__: object) -> Console:
        return terminal

    there: Any = output
    there.Console = one_terminal
    there.Output._bar = no_bar
    terminal.print(f"$ {COMMAND}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            cli.main([f"{folder}/lake" if part == "build/lake" else part for part in shlex.split(COMMAND)[1:]])
        except SystemExit as ended:
            if ended.code:
                raise
    drawn = terminal.export_svg(title="isr-batch", code_format=_FORMAT, unique_id="terminal")
    PICTURE.write_text(drawn.replace(folder, "build"), "utf-8")


if __name__ == "__main__":
    main()
