"""Damage log lines at random: cut, doubled or changed text."""

import random
import re

NUMBER = re.compile(rb"-?\d+(\.\d+)?")
ODD_NUMBERS = (
    b"-1", b"-7", b"2147483648", b"9007199254740993", b"9223372036854775807", b"99999999999999999999", b"1e308",
    b"-0.0", b"NaN", b'"NaN"', b"null", b"true", b'"1"', b"[]", b"{}", b"00012", b"1e-320", b"", b"4611686018427387904",
)  # fmt: skip


def mutated(original: bytes, other: bytes, chance: random.Random) -> bytes:  # noqa: C901 (a list of things to do)
    """Damage a line at random in one to three places."""
    changed = bytearray(original)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at, upto = sorted(chance.randrange(len(changed) + 1) for _ in "ab")
        what = chance.randrange(12)
        if what < 4 and (numbers := list(NUMBER.finditer(changed))):  # most of what gets through the JSON reader
            number = chance.choice(numbers)
            changed[number.start() : number.end()] = chance.choice(ODD_NUMBERS)
        elif what == 4:
            changed = changed[:at]
        elif what == 5:
            changed = changed[:at] + other[chance.randrange(len(other)) :]
        elif what == 6:
            changed[at:at] = changed[at : min(upto, at + 300)]
        elif what == 7:
            del changed[at : min(upto, at + 100)]
        elif what == 8:
            changed = bytearray(changed.translate(bytes.maketrans(*chance.choice(((b"{}", b"}{"), (b"[]", b"{}"))))))
        elif what == 9:
            changed[at:at] = chance.choice(
                (b'"', b"\\", b"'", b"\0", b"\xff", b"\r", b"\n", b"\xe2\x80\xa8", b"<script>")
            )
        elif changed:
            for _ in range(chance.randrange(1, 4)):
                changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)
