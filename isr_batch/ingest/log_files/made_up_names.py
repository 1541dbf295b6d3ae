"""Replace names and addresses in log lines by made-up ones, each name always by the same made-up name.

Any word in a line may be a name, so all words are replaced except those that Kafka's own messages contain. A first pass
over all lines collects the names of topics from the places where Kafka prints topics. If a topic is named like a word
of Kafka's messages, it is replaced only in such places.
"""

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Mapping
from functools import cache
from typing import Final

from isr_batch.broker_lines import forms, gc_log, metadata_log

_TOPIC: Final = r"([A-Za-z0-9._-]+)"
_TOPICS: Final = re.compile(
    rf"\[Partition {_TOPIC}-\d+ broker|\b[Pp]artitions? {_TOPIC}-\d+\b|\b(?:Leader|Follower|for) {_TOPIC}-\d+ "
    rf"|\[{_TOPIC},\d+\]|\btopic(?:Name)?='?{_TOPIC}'?[,)}}]|\bTopic: ?{_TOPIC}(?=\s)"
    rf"|[\w-]{{21}}[AQgw]:{_TOPIC}-\d+\b|\b[Uu]pdating topic {_TOPIC} with\b"
)
_INTERNAL: Final = re.compile(r"__[a-z_]+")
_FEATURE: Final = re.compile(r"(metadata|kraft|eligible\.leader\.replicas)\.version")
_ADDRESS: Final = re.compile(
    r"(?<![\w.])(?<!ersion )(?<!ersion: )(?<!ersion : )\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\.\d)"
    r"|(?<![\w:])(?:[0-9a-fA-F]{1,4}:){4,7}[0-9a-fA-F]{1,4}(?![\w:])|(?<![\w:])(?:[0-9a-fA-F]{1,4})?::[0-9a-fA-F:]*[0-9a-fA-F]"
)
_WORD: Final = re.compile(r"/?[A-Za-z_][\w.$/%@~+-]*|\d[\d.]*[A-Za-z_-][\w.-]*")
_LOGGER: Final = re.compile(r"(?:kafka|org\.apache|java|state\.change)\.[\w.$]+|state\.change\.logger")
_LEVEL: Final = re.compile(r"^(\[[^\]]*\] )([A-Z]+ )?")
_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)*)"(\s*:)?')
_PARTITION: Final = re.compile(r"(.+)-(\d+)")
_TOPIC_ID: Final = re.compile(r"[\w-]{21}[AQgw]")
_FETCHER: Final = re.compile(r"broker-\d+-fetcher-\d+")
_PLAIN: Final = re.compile(r"[\d.,:TZ+-]*")
_OF_KAFKA: Final = {"type", "requestApiKeyName", "topicId", "replicaDirectoryId", "softwareVersion", "securityProtocol"}
"""Fields of requests and records whose values are Kafka's own words, or ids. They are kept."""
_KINDS: Final = {
    "topic": {"topic", "topics", "topicName", "name", "resourceName"}, "host": {"host", "connection", "rack", "rackId"},
    "user": {"principal"},
}  # fmt: skip
_MORE_WORDS: Final = (
    "INFO WARN ERROR DEBUG TRACE FATAL broker Broker partition partitions Partition topic topics topicId Topic "
    "TopicId PartitionCount ReplicationFactor Configs Replicas Isr Elr LastKnownElr none id ids with for from to "
    "and in on of is the as at epoch epochs leader follower Leader Follower node Completed request RequestHeader "
    "apiKey apiVersion clientId correlationId Name Version CorrelationId ClientId ReplicaId MaxWait ms MinBytes "
    "MaxBytes bytes RequestInfo PartitionFetchInfo FETCH PRODUCE FetchRequest ProducerRequest connection response "
    "totalTime requestQueueTime localTime remoteTime responseQueueTime sendTime throttleTime securityProtocol "
    "principal listener User Some None Set HashSet ArrayBuffer List Map true false null Adding Removing Creating "
    "new adding removing previous Previous already since version payload CreateTime keySize valueSize sequence "
    "headerKeys GC gc Pause info safepoint secs "
)
_REGULAR: Final = re.compile(r"\\[A-Za-z]|\(\?[:=!<P]\w*>?|[^A-Za-z]+")


@cache
def words_of_kafka() -> frozenset[str]:
    """Return the words of Kafka's own messages, extracted from the patterns of the lines that isr-batch parses."""
    texts = [_MORE_WORDS]
    for value in [*vars(forms).values(), *vars(metadata_log).values(), *vars(gc_log).values()]:
        if isinstance(value, forms.Form):
            texts.append(value.pattern)
        elif isinstance(value, str):
            texts.append(value)
        elif isinstance(value, dict):
            texts += [text for text in value.values() if isinstance(text, str)]
    return frozenset(word for text in texts for word in _REGULAR.sub(" ", text).split())


class MadeUpNames:
    """Replaces names in lines. Call `find` for all lines before the first call of `replaced`.

    Parameters
    ----------
    key : bytes, optional
        Secret from which the made-up names are derived. By default, it is random and not stored.

    Attributes
    ----------
    names : dict of str to str
        The made-up name of each name that was found, by original name.
    """

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key or secrets.token_bytes(32)
        self.names: dict[str, str] = {}
        self.partitioned: set[str] = set()
        """Names of topics. In lines, the number of a partition may follow them, as in ``topic-0``."""

    def name(self, kind: str, text: str) -> str:
        """Return the made-up name for the name ``text``. A new one begins with ``kind``, such as ``topic``."""
        if text not in self.names:
            self.names[text] = f"{kind}-{self._digest(text).hex()[:10]}"
        return self.names[text]

    def find(self, line: str) -> None:
        """Collect the names of topics in a line, so that `replaced` replaces them in all lines."""
        for found in _TOPICS.finditer(line):
            topic = next(filter(None, found.groups()))
            if not _INTERNAL.fullmatch(topic):
                self.partitioned.add(topic)
                self.name("topic", topic)
        key = ""
        for found in _STRING.finditer(line) if '"' in line else ():
            if found[2]:
                key = found[1]
            elif key in _KINDS["topic"] and found[1] and not self._is_kept(found[1]):
                self.partitioned.add(found[1])
                self.name("topic", found[1])

    def replaced(self, line: str) -> str:
        """Return a line with its names and addresses replaced.

        ``line`` is a log line in Kafka's own layout, a metadata record, or a line of a partition listing.
        """
        head = _LEVEL.match(line)
        start = head.end() if head else 0
        at = line.find("{", start)
        if at >= 0 and '"' in line[at:]:
            end = line.rfind("}") + 1
            return line[:start] + self._text(line[start:at]) + self._json(line[at:end]) + self._text(line[end:])
        return line[:start] + self._text(line[start:])

    def _json(self, text: str) -> str:
        """Return JSON text with the names in its values replaced."""
        key = ""

        def one(found: "re.Match[str]") -> str:
            nonlocal key
            if found[2]:
                key = found[1]
                return found[0]
            value = found[1]
            if key in _OF_KAFKA or not value or (key not in _KINDS["topic"] and _PLAIN.fullmatch(value)):
                return self._without_addresses(found[0])
            if _FETCHER.fullmatch(value) or self._is_kept(value):
                return found[0]
            if key == "principal" and value.startswith("User:"):
                return f'"User:{self.name("user", value[5:])}"'
            if key == "connection":
                return f'"{self._text(self._without_addresses(value))}"'
            kind = next((kind for kind, keys in _KINDS.items() if key in keys), "client" if "lient" in key else "name")
            return json.dumps(self.name(kind, value))

        return _STRING.sub(one, text)

    def _is_kept(self, value: str) -> bool:
        """Return whether a value is a name that Kafka itself gives, such as that of an internal topic."""
        return bool(_INTERNAL.fullmatch(value) or _FEATURE.fullmatch(value) or value in {forms.LAG_TIME, forms.MIN_ISR})

    def _text(self, text: str) -> str:
        """Return a text with its names and addresses replaced, word by word."""
        text = self._without_addresses(text)
        return _WORD.sub(
            lambda found: self._word(found[0], text[: found.start()][-7:], text[found.end() : found.end() + 1]), text
        )

    def _word(self, word: str, before: str, then: str) -> str:
        """Return the word, or the made-up name if it is a name.

        Parameters
        ----------
        word, before : str
            The word, and the text just before it.
        then : str
            The character after the word.
        """
        stem = word.rstrip(".-:/")
        end = word[len(stem) :]
        if stem in self.names and (
            stem not in words_of_kafka()
            or then == ","
            or (stem in self.partitioned and before.endswith(("topic ", "Topic: ")))
        ):
            return self.names[stem] + end
        of_partition = _PARTITION.fullmatch(stem)
        if of_partition and of_partition[1] in self.partitioned:
            return f"{self.names[of_partition[1]]}-{of_partition[2]}{end}"
        if (
            not re.search("[A-Za-z]", stem)
            or _is_of_kafka(stem)
            or _LOGGER.fullmatch(stem)
            or _INTERNAL.match(stem)
            or then in {"=", "("}
        ):
            return word
        if _FETCHER.fullmatch(stem) or _TOPIC_ID.fullmatch(stem):
            return word
        return self.name("dir" if stem.startswith("/") else "name", stem) + end

    def _without_addresses(self, text: str) -> str:
        return _ADDRESS.sub(lambda found: self._address(found[0]), text)

    def _address(self, text: str) -> str:
        """Return the made-up address that replaces an address."""
        self.names.setdefault(text, "10." + ".".join(str(byte) for byte in self._digest(text)[:3]))
        return self.names[text]

    def _digest(self, text: str) -> bytes:
        """Return a hash of a text that depends on the secret key."""
        return hmac.new(self.key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).digest()


def _is_of_kafka(word: str) -> bool:
    """Return whether all parts of a word are Kafka's own words. In the patterns, their first letters may be missing."""
    known = words_of_kafka()
    return all(part in known or part[1:] in known or len(part) == 1 for part in re.findall("[A-Za-z]+", word))


def names_as_text(names: Mapping[str, str]) -> str:
    """Return a JSON object that maps each made-up name to the original name."""
    return json.dumps({made_up: name for name, made_up in sorted(names.items())}, indent=1, ensure_ascii=False) + "\n"
