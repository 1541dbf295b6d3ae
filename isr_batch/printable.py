"""Make names and texts from others safe to show in a terminal, a picture, a label, a log or a command to copy.

Names of clusters, topics, clients and files come from other people's logs and folders. A control character in one may
move a terminal's cursor, a bidirectional mark may reverse a line, and pictures allow neither.
"""

import shlex
import unicodedata


def printable(text: str) -> str:
    r"""Escape every invisible character, line ends included, by its number: ``\x1b``, ``\u202e``."""
    return text if text.isprintable() else "".join(map(_visible, text))


def printable_lines(text: str) -> str:
    """Escape each line of a text with `printable`."""
    return "\n".join(map(printable, text.split("\n")))


def shell_word(text: str) -> str:
    """Quote a text as one word of a shell command that people copy."""
    if all(map(_is_visible, text)):
        return shlex.quote(text)
    escaped = text.replace("\\", r"\\").replace("'", r"\'")
    word = "".join(each if _is_visible(each) else f"\\U{ord(each):08x}" for each in escaped)
    return f"$'{word}'"


def _is_visible(character: str) -> bool:
    # Python treats spaces other than the usual one as not printable.
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _visible(character: str) -> str:
    if _is_visible(character):
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 1 << 8 else f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"
