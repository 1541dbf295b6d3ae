"""Events of log pipelines, damaged at random: cut, joined, with other types, repeated names, deep, in other orders."""

import json
import random

from tests.pipeline_events import EVENTS

VALUES: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    10**30,
    1e400,
    "",
    "\0",
    "\ud800",
    [],
    {},
    [1],
    {"a": {}},
    "2026-99-99T99:99:99Z",
    "{",
    "é" * 9,
)
_BYTES = (b"\0", b"\xff", b"\n", b"\r", b'"', b"{", b"}", b"\\", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b",")


def _other_value(chosen: random.Random, event: object) -> object:
    """Replace one value of an event at any depth, or remove or rename its key."""
    if isinstance(event, dict) and event:
        name = chosen.choice(sorted(event))
        if chosen.random() < 0.3:
            other = {key: value for key, value in event.items() if key != name}
            return other | (
                {chosen.choice(["x", "", name.upper(), f"{name}."]): event[name]} if chosen.random() < 0.5 else {}
            )
        return event | {name: _other_value(chosen, event[name])}
    if isinstance(event, list) and event and chosen.random() < 0.7:
        at = chosen.randrange(len(event))
        return [*event[:at], _other_value(chosen, event[at]), *event[at + 1 :]]
    if isinstance(event, str) and event and chosen.random() < 0.6:
        at = chosen.randrange(len(event))
        return event[:at] + chosen.choice(["", "\n", "\u2028", "(", "[", event]) + event[at + 1 :]
    return chosen.choice(VALUES)


def _other_bytes(chosen: random.Random, line: bytes) -> bytes:
    at, until = sorted(chosen.randrange(len(line) + 1) for _ in range(2))
    return chosen.choice([
        line[:at], line[at:], line[:at] + line[until:], line[:at] + chosen.choice(_BYTES) + line[at:], line + line,
        b'{"a":' * 2000 + line,
    ])  # fmt: skip


def mutated(chosen: random.Random, line: str) -> bytes:
    """Damage an event at random, or leave it as it is, because most of a file has to stay readable."""
    if chosen.random() < 0.6:
        return line.encode()
    if chosen.random() < 0.7:
        event = _other_value(chosen, json.loads(line))
        return json.dumps(event, ensure_ascii=chosen.random() < 0.5).encode(errors="surrogatepass")
    return _other_bytes(chosen, line.encode())


def file_of_events(chosen: random.Random, lines: list[tuple[str, ...]], number: int) -> bytes:
    """Write a file of ``number`` events, some of them damaged, of one pipeline or of two."""
    kinds = chosen.choices(list(EVENTS.values()), k=1 if chosen.random() < 0.8 else 2)
    return b"\n".join(mutated(chosen, chosen.choice(kinds)(*chosen.choice(lines))) for _ in range(number))
