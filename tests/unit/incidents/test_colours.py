"""Colours that mean different things look different, also to the colour-blind and on a dark page."""

from itertools import combinations

import numpy as np
import pytest

from isr_batch.incidents import colours

SEES = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
"""Linear RGB as it is seen (Machado, Oliveira, Fernandes 2009, severity 1)."""
TOGETHER = {
    "timeline": [*colours.VERDICT_COLOURS.values(), colours.SILENT],
    "followers": [*colours.FOLLOWER_LINES],
    "suspects": [*colours.SUSPECT_COLOURS.values()],
    "phases": [*colours.PHASE_COLOURS.values(), colours.SILENT, "#d9d9d9"],
    "members": [*colours.MEMBER_COLOURS],
    "ages": [*colours.AGE_COLOURS.values()],
}


def linear(colour: str) -> np.ndarray:
    values = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIELAB of linear RGB, white point D65."""
    to_xyz = [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    part = np.array(to_xyz) @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    x, y, z = np.where(part > 0.008856, np.cbrt(part), 7.787 * part + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("eye", SEES)
def test_colours_in_one_picture_differ(name: str, eye: str) -> None:
    seen = {colour: lab(np.array(SEES[eye]) @ linear(colour)) for colour in TOGETHER[name]}
    near = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(seen, 2)}
    assert min(near.values()) > 12, sorted(near.items(), key=lambda one: one[1])[:3]


def test_a_colour_has_one_meaning() -> None:
    """Orange and blue are verdicts, and nothing else is."""
    verdicts = {colours.VERDICT_COLOURS["spurious"], colours.VERDICT_COLOURS["genuine"]}
    others = {*colours.FOLLOWER_LINES, *colours.SUSPECT_COLOURS.values(), *colours.PHASE_COLOURS.values()}
    assert not verdicts & (others | {colours.SILENT, *colours.MEMBER_COLOURS})
