"""docs/images/terminal.svg: what two questions to the samples look like in a terminal; swim-lane.png: what one draws.

``python -m docs.generate.terminal_picture LAKE`` asks a lake of the samples.
"""

import re
import shlex
import sys
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from pipelines import cli, output

if TYPE_CHECKING:
    from collections.abc import Iterator

PICTURE: Final = Path(__file__).parents[1] / "images" / "terminal.svg"
COMMANDS: Final = (
    "isr-batch compare kafka-3.7 kip-501-pending --lake LAKE",
    "isr-batch explain --topic busy --partition 0 --at 2026-11-21T16:31:54 --lake LAKE",
)
WIDTH: Final = 166
# The letters are the reader's own: a picture in a page may not ask for any.
_FORMAT: Final = re.sub(r"@font-face {{.*?}}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main(lake: str) -> None:
    """Run the commands in a terminal that remembers."""
    terminal = Console(record=True, force_terminal=True, width=WIDTH, file=StringIO(), markup=False, highlight=False)

    @contextmanager
    def no_bar(*_: object) -> "Iterator[None]":
        yield

    def one_terminal(*_: object, **__: object) -> Console:
        return terminal

    there: Any = output
    there.Console = one_terminal
    there.Output._bar = no_bar
    for command in COMMANDS:
        terminal.print(f"$ {command}")
        try:
            cli.main([lake if part == "LAKE" else part for part in shlex.split(command)[1:]])
        except SystemExit as ended:
            if ended.code:
                raise
    drawn = terminal.export_svg(title="isr-batch", code_format=_FORMAT, unique_id="terminal")
    PICTURE.write_text(drawn.replace(lake, "LAKE"), "utf-8")
    asked = [lake if part == "LAKE" else part for part in shlex.split(COMMANDS[1])[1:]]
    cli.main([*asked, "--out", str(PICTURE.with_name("swim-lane.png")), "--quiet"])


if __name__ == "__main__":
    main(*sys.argv[1:])
