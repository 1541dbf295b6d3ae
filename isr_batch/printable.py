"""Make names and texts from other people safe to show in a terminal, picture, label, log, or command to copy.

Names of clusters, topics, clients and files come from logs and folders. A control character in a name may move a
terminal's cursor, and a bidirectional mark may reverse a line. Picture formats allow neither.
"""

import re
import shlex
import unicodedata

_ADDRESS = re.compile(r"(?<![\w+.-])([A-Za-z][\w+.-]*:/+)([^\s'\"<>]*)")
_PORT = re.compile(r"[^/:]*:\d+/")
_SECRET = re.compile(r"sig|token|secret|password|credential|key", re.IGNORECASE)


def printable(text: str) -> str:
    r"""Return a text without credentials, in which invisible characters and line ends are escapes such as ``\x1b``."""
    text = without_credentials(text)
    return text if text.isprintable() else "".join(map(_visible_in_printable, text))


def without_credentials(text: str) -> str:
    """Return a text with ``***`` instead of the credentials in each address: ``s3://***@bucket/lake``."""
    return _ADDRESS.sub(_hidden_in_printable, text) if ":/" in text else text


def _hidden_in_printable(address: re.Match[str]) -> str:
    """Return an address, given as a match of `_ADDRESS`, with ``***`` instead of its credentials."""
    scheme, place = address[1], address[2]
    place, mark, query = place.partition("?")
    user, at, host = place.rpartition("@")
    if scheme.startswith("s3"):  # buckets have no port; secrets may have slashes
        is_secret = ":" in user.partition("/")[0]
    elif scheme.startswith("http"):
        is_secret = "/" not in user
    else:  # before the @ may be a container, as in Azure's addresses
        is_secret = ":" in user.partition("/")[0] and not _PORT.match(user)
    place = f"***@{host}" if at and is_secret else place
    return f"{scheme}{place}{mark}{'***' if _SECRET.search(query) else query}"


def printable_lines(text: str) -> str:
    """Apply `printable` to each line of a text. Line ends are kept."""
    return "\n".join(map(printable, text.split("\n")))


def shell_word(text: str) -> str:
    """Quote a text as one word of a shell command that people may copy. Invisible characters are escaped."""
    if all(map(_is_printable, text)):
        return shlex.quote(text)
    escaped = text.replace("\\", r"\\").replace("'", r"\'")
    word = "".join(each if _is_printable(each) else f"\\U{ord(each):08x}" for each in escaped)
    return f"$'{word}'"


def _is_printable(character: str) -> bool:
    """Whether a character is visible, or a space of any kind."""
    # Python treats spaces other than the usual one as not printable.
    return character.isprintable() or unicodedata.category(character) == "Zs"


def _visible_in_printable(character: str) -> str:
    """Return a visible character unchanged, and any other character as an escape with its code point."""
    if _is_printable(character):
        return character
    number = ord(character)
    return f"\\x{number:02x}" if number < 1 << 8 else f"\\u{number:04x}" if number < 1 << 16 else f"\\U{number:08x}"
