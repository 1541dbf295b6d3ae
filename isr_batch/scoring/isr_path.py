"""Trace a partition under each rule run: its ISR, its ELR (KIP-966), and its heir (the next leader).

Spark's workers import this module, so it may not import packages that are only installed on the driver.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa

from isr_batch.scoring.controller_words import ControlledCluster, ControllerWord
from isr_batch.scoring.elr import elr_after

DAY_US: Final = 86_400_000_000
STAMP_US: Final = 1_000
"""Largest error of a timestamp in microseconds: timestamps are truncated to milliseconds."""

_INTS: Final = pa.list_(pa.int32())
SPANS: Final = pa.schema([
    ("cluster_id", pa.string()), ("topic", pa.string()), ("partition_id", pa.int32()), ("leader_epoch", pa.int32()),
    ("leader_id", pa.int32()), ("rule", pa.string()), ("params_json", pa.string()), ("from_us", pa.int64()),
    ("until_us", pa.int64()), ("isr", _INTS), ("min_insync_replicas", pa.int32()), ("elr_enabled", pa.bool_()),
    ("elr_source", pa.string()), ("elr", _INTS), ("heir_id", pa.int32()), ("offline_if_leader_dies", pa.bool_()),
    ("elr_if_on", _INTS), ("heir_if_on", pa.int32()), ("heir_if_off", pa.int32()), ("active", _INTS),
])  # fmt: skip
"""Schema of the result of `spans_outside_isr`. Times are microseconds since 1970."""


@dataclass
class _Known:
    """Settings and inactive brokers of a partition, according to the controller's statements up to some time."""

    enabled: bool | None
    of_topic: int | None = None
    of_cluster: int | None = None
    inactive: set[int] = field(default_factory=set)

    def min_isr(self, term: Mapping[str, Any]) -> int:
        """Return min.insync.replicas in force: the rule run's if it overrides the setting, else the last recorded one.

        Without a recorded value, it is the term's. It is at most the number of assigned replicas.
        """
        set_to = self.of_topic if self.of_topic is not None else self.of_cluster
        wanted = set_to if set_to is not None and term["min_isr"] == term["min_isr_of_term"] else term["min_isr"]
        return min(wanted, len(term["assigned"]))


class _IsrPathState:
    """The ISR under a rule, the ELR with the cluster's settings (``elr``), and the ELR if it were on (``elr_if_on``).

    Sets of brokers are bit masks, as in `isr_batch.scoring.elr`. An ELR is None while it is unknown.
    """

    def __init__(self, brokers: Iterable[int]) -> None:
        self._bits = {broker: 1 << place for place, broker in enumerate(sorted({*brokers}))}
        self.isr = 0
        self.elr: int | None = None
        self.elr_if_on: int | None = None

    def begin(self, recorded: Iterable[int] | None, known: _Known) -> None:
        """Set both ELRs, at the start of the log, to the recorded ELR. If none is recorded, both stay unknown."""
        if recorded is not None and known.enabled:
            self.elr = self.elr_if_on = sum(self._bits.get(broker, 0) for broker in recorded)

    def change(self, isr: Iterable[int], known: _Known, min_isr: int, *, unclean: bool = False) -> None:
        """Set the ISR, and update both ELRs, which are empty after an unclean election."""
        wanted = sum(self._bits[broker] for broker in isr)

        def after(elr: int | None) -> int | None:
            """Return the ELR after an ISR change, given the ELR before it; None if it is still unknown."""
            if unclean:
                return 0
            found = elr_after(self.isr, elr or 0, wanted, 0, min_isr)
            return None if elr is None and wanted.bit_count() < min_isr else found

        self.elr = after(self.elr) if known.enabled else 0
        self.elr_if_on = after(self.elr_if_on)
        self.isr = wanted

    def lose(self, broker: int | None) -> None:
        """Remove a broker from both ELRs. If ``broker`` is None, empty both."""
        if broker is None:
            self.elr = self.elr_if_on = 0
            return
        kept = ~self._bits.get(broker, 0)
        self.elr = None if self.elr is None else self.elr & kept
        self.elr_if_on = None if self.elr_if_on is None else self.elr_if_on & kept

    def among(self, brokers: Iterable[int], replicas: int) -> list[int]:
        """Return those of ``brokers`` that are in the bit mask ``replicas``."""
        return [broker for broker in brokers if self._bits[broker] & replicas]


def spans_outside_isr(rows: pa.Table, clusters: Mapping[str, ControlledCluster]) -> pa.Table:
    """Return the periods in which a replica of a partition is outside the ISR, under each rule run.

    Parameters
    ----------
    rows : pa.Table
        Rows of one partition, of three kinds:

        - ``term``: ``at_us`` and ``end_us`` (start and end), ``assigned``, ``isr`` (at the start), ``min_isr`` (of the
          rule run), ``min_isr_of_term``, ``write_us`` (duration of an ISR write), and ``elr``, if it is recorded.
        - ``shrink``, ``expand``, ``relinquish`` (the leader gave up leadership): ``at_us``, ``isr_before``, ``isr``
          (afterwards), ``made_by``.
        - ``write`` (a logged ISR write): ``at_us``, and ``end_us``, the time of the response.
    clusters : mapping of str to ControlledCluster

    Returns
    -------
    pa.Table
        Rows with the schema `SPANS`.
    """
    listed = rows.to_pylist()
    run = itemgetter("rule", "params_json")
    found: list[dict[str, Any]] = []
    for _, of_run in groupby(sorted(listed, key=run), key=run):
        found.extend(_isr_path_of_run(list(of_run), clusters))
    return pa.Table.from_pylist(found, SPANS)


def _isr_path_of_run(rows: list[dict[str, Any]], clusters: Mapping[str, ControlledCluster]) -> Iterator[dict[str, Any]]:
    """Yield the rows of `spans_outside_isr` under one rule run, term by term, given the run's terms and ISR changes."""
    cluster = clusters[rows[0]["cluster_id"]]
    topic, partition_id = rows[0]["topic"], rows[0]["partition_id"]
    words = [
        word for word in cluster.words
        if word.topic in {None, topic} and word.partition_id in {None, partition_id}
    ]  # fmt: skip
    terms = sorted((row for row in rows if row["kind"] == "term"), key=itemgetter("at_us", "leader_epoch"))
    known, heard = _Known(cluster.enabled), 0
    state = _IsrPathState(broker for term in terms for broker in term["assigned"])
    for term in terms:
        of_term = [row for row in rows if row["kind"] != "term" and _is_of_isr_path(row, term)]
        changes = sorted((row for row in of_term if row["kind"] != "write"), key=_in_turn)
        writes = {row["at_us"]: row["end_us"] for row in of_term if row["kind"] == "write"}
        events: list[tuple[int, int, Any]] = [(at_us, 1, isr) for at_us, isr in _isr_commits(changes, term, writes)]
        while heard < len(words) and words[heard].at_us <= term["at_us"]:
            _hear_of_isr(words[heard], known, state)
            heard += 1
        if term is terms[0]:
            state.begin(term["elr"], known)
        unclean = any(word.kind == "unclean" and word.leader_epoch == term["leader_epoch"] for word in words)
        state.change(term["isr"], known, known.min_isr(term), unclean=unclean)
        while heard < len(words) and words[heard].at_us < term["end_us"]:
            events.append((words[heard].at_us, 0, words[heard]))
            heard += 1
        yield from _merged_isr_path(
            _isr_path_of_term(term, sorted(events, key=itemgetter(0, 1)), known, state, cluster)
        )


def _is_of_isr_path(change: Mapping[str, Any], term: Mapping[str, Any]) -> bool:
    """Whether an ISR change or a logged write is from this term."""
    same = change["leader_epoch"] == term["leader_epoch"] and change["leader_id"] == term["leader_id"]
    return bool(same and term["at_us"] <= change["at_us"] <= term["end_us"])


def _in_turn(change: Mapping[str, Any]) -> tuple[int, str, int, list[int]]:
    """Return the sort key of an ISR change: its time, and then the order in which changes at this time were made."""
    members = len(change["isr_before"])
    return change["at_us"], change["kind"], members if change["kind"] == "expand" else -members, change["isr"]


def _isr_commits(
    changes: Iterable[Mapping[str, Any]], term: Mapping[str, Any], writes: Mapping[int, int]
) -> Iterator[tuple[int, frozenset[int]]]:
    """Yield (time, ISR) for each time at which a new ISR is committed in a term.

    ``writes`` are the times at which the response to an ISR write arrives, by the time of its request.

    A change that the rule requested is committed when the response to its ISR write arrives, unless another change came
    first. In that case, the ISR before the next change is not the requested one.
    """
    asked: tuple[int, frozenset[int]] | None = None
    isr = frozenset(term["isr"])
    for (at_us, *_), several in groupby(changes, key=_in_turn):
        change = next(iter(several))
        if asked:
            if frozenset(change["isr_before"]) == asked[1]:
                yield asked
                isr = asked[1]
            asked = None
        if frozenset(change["isr_before"]) != isr:
            # A removal that only cancelled the rule's pending request has no row.
            isr = frozenset(change["isr_before"])
            yield at_us, isr
        if change["kind"] == "relinquish":
            continue
        after = frozenset(change["isr"])
        if change["made_by"] == "controller":
            yield at_us, after
            isr = after
        else:
            asked = _answered_us(at_us, term["write_us"], writes), after
    if asked:
        yield asked


def _answered_us(at_us: int, write_us: int, writes: Mapping[int, int]) -> int:
    """Return when the response to an ISR write requested at ``at_us`` arrives, as `udfs.kernel.isr` computes it."""
    asked_us = max((us for us in writes if us <= at_us), default=None)
    if not write_us or asked_us is None or at_us >= writes[asked_us]:
        return at_us + write_us
    return writes[asked_us] if at_us <= asked_us + STAMP_US else max(at_us + write_us, writes[asked_us])


def _hear_of_isr(word: ControllerWord, known: _Known, state: _IsrPathState) -> None:
    """Update ``known`` and ``state`` according to a statement of the controller."""
    if word.kind == "elr_version":
        known.enabled = (word.value or 0) > 0
    elif word.kind == "min_isr" and word.topic is None:
        known.of_cluster = word.value
    elif word.kind == "min_isr":
        known.of_topic = word.value
    elif word.kind == "cleared":
        state.lose(None)
    elif word.broker_id is not None:
        one = {word.broker_id}
        if word.kind == "active":
            known.inactive -= one
        else:
            known.inactive |= one
        if word.kind == "unclean_restart":
            state.lose(word.broker_id)


def _isr_path_of_term(
    term: Mapping[str, Any],
    events: Iterable[tuple[int, int, Any]],
    known: _Known,
    state: _IsrPathState,
    cluster: ControlledCluster,
) -> Iterator[dict[str, Any]]:
    """Yield a term's rows, each for the time from an event to the next. Rows are split at midnight (UTC).

    ``known`` and ``state`` are updated by the events. They contain what the controller has said, and the ISR with both
    ELRs.
    """
    at_us = term["at_us"]
    for then_us, _, event in [*events, (term["end_us"], 2, None)]:
        until_us = min(then_us, term["end_us"])
        while at_us < until_us:
            cut_us = min(until_us, (at_us // DAY_US + 1) * DAY_US)
            if row := _row(term, known, state, cluster):
                yield row | {"from_us": at_us, "until_us": cut_us}
            at_us = cut_us
        if isinstance(event, ControllerWord):
            _hear_of_isr(event, known, state)
        elif event is not None and then_us < term["end_us"]:
            state.change(event, known, known.min_isr(term))


def _row(
    term: Mapping[str, Any], known: _Known, state: _IsrPathState, cluster: ControlledCluster
) -> dict[str, Any] | None:
    """Return a row of `spans_outside_isr` without its times; None if all replicas are in the ISR and an heir exists.

    ``state`` has the ISR and both ELRs, and ``known`` what the controller has said up to then.
    """
    order = [replica for replica in term["assigned"] if replica not in known.inactive and replica != term["leader_id"]]
    isr = state.among(term["assigned"], state.isr)
    if order and len(isr) == len(term["assigned"]):
        return None
    enabled = known.enabled

    def heir(elr: int | None) -> int | None:
        """Return the broker that would be elected cleanly with this ELR; None if none could be."""
        return next(iter(state.among(order, state.isr) or state.among(order, elr or 0)), None)

    if_on, if_off = heir(state.elr_if_on), heir(0)
    if enabled is None:
        unknown = if_on != if_off or (if_on is None and state.elr_if_on is None)
    else:
        unknown = state.elr is None and if_off is None
    in_force = if_off if enabled is None or unknown else heir(state.elr)
    elr, elr_if_on = (
        None if each is None else state.among(term["assigned"], each) for each in (state.elr, state.elr_if_on)
    )
    return {name: term[name] for name in SPANS.names[:7]} | {
        "isr": isr, "min_insync_replicas": known.min_isr(term),
        "elr_enabled": enabled,
        "elr_source": cluster.source, "elr": None if enabled is None else elr,
        "heir_id": None if unknown else in_force, "offline_if_leader_dies": None if unknown else in_force is None,
        "elr_if_on": elr_if_on, "heir_if_on": if_on, "heir_if_off": if_off, "active": order,
    }  # fmt: skip


def _merged_isr_path(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Join adjacent rows of the same day that differ only in their times."""
    last: dict[str, Any] | None = None
    for row in rows:
        adjacent = last and row["from_us"] == last["until_us"] and row["from_us"] % DAY_US
        if last and adjacent and row | {"from_us": last["from_us"], "until_us": last["until_us"]} == last:
            last["until_us"] = row["until_us"]
            continue
        if last:
            yield last
        last = row
    if last:
        yield last
