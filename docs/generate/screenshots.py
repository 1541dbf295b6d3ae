"""Take the pictures of the report in docs/images: `python -m docs.generate.screenshots build/lake/report.html`."""

import sys
import tempfile
from pathlib import Path
from typing import Final

from docs.generate import chromium

IMAGES: Final = Path(__file__).parents[1] / "images"
FIRST_SCREENS: Final = ((800, 1640, "dark"), (1280, 1190, "light"), (1920, 1000, "light"))
"""Width, height and colours."""
SHRINK: Final = "Broker 1 drops broker 2 and broker 3 from the ISR of bursty-3"


def take(report: Path, folder: Path = IMAGES) -> None:
    """Take the first screen at three widths, and a shrink that was opened."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
        chromium.open_page(report, Path(profile)) as tab,
    ):
        for width, height, colours in FIRST_SCREENS:
            tab.size(width, height)
            tab.media("screen", colours)
            tab.screenshot(folder / f"report-{width}.png", height=height)
        tab.size(1280, 900)
        tab.media("screen", "light")
        tab.value(
            "document.querySelectorAll('.card > details').forEach("
            f"e => {{ e.open = e.textContent.includes('{SHRINK}'); }})"
        )
        tab.screenshot(folder / "shrink.png", ".card > details[open]")


if __name__ == "__main__":
    take(Path(sys.argv[1]))
