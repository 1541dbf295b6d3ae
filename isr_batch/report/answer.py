"""Sum up a lake in a few sentences: the followers that brokers dropped, and rules that would have kept them."""

from collections.abc import Mapping
from dataclasses import dataclass

from isr_batch.evidence.answer import evidence_answer
from isr_batch.evidence.evidence_table import read_evidence_table
from isr_batch.evidence.missing_logs import uninformed_leaders
from isr_batch.evidence.notes_of_brokers import notes_of_brokers
from isr_batch.incidents.better_rule import better_rule
from isr_batch.incidents.own_shrinks import OwnShrinks, own_shrinks, unjudged_clusters
from isr_batch.incidents.rule_choices import read_scores_for_choices
from isr_batch.incidents.sentences import incidents_answer
from isr_batch.lake.arrow_read import read_columns
from isr_batch.lake.lake import Lake


@dataclass(frozen=True)
class Answer:
    """The text that the command `run` prints about a replayed lake, and the data behind it.

    Attributes
    ----------
    own : OwnShrinks
        The brokers' drops, with the replay's verdicts.
    better : mapping of str to list of str
        For each cluster, a sentence that recommends a rule, or nothing.
    by_lines : mapping of str to list of str
        For each cluster that the replay cannot judge, sentences on what server.log shows.
    """

    own: OwnShrinks
    better: Mapping[str, list[str]]
    by_lines: Mapping[str, list[str]]

    @property
    def lines(self) -> list[str]:
        """The text to print, in at most ten lines."""
        return incidents_answer(self.own, self.better, self.by_lines)


def answer_of(lake: Lake) -> Answer:
    """Query a replayed lake for the text that the command `run` prints."""
    own, scores = own_shrinks(lake), read_scores_for_choices(lake)
    return Answer(
        own,
        {one["cluster_id"]: better_rule(own, scores, one["cluster_id"]) for one in own.clusters},
        {name: _by_lines(lake, name) for name in unjudged_clusters(own)},
    )


def _by_lines(lake: Lake, cluster_id: str) -> list[str]:
    """Return sentences on what server.log shows about the drops in a cluster."""
    evidence = read_evidence_table(lake, cluster_id)
    of_cluster = read_columns(
        lake, "coverage", ("cluster_id", "broker_id", "log"), {"cluster_id": cluster_id}
    ).to_pylist()
    brokers, informed = ({row["broker_id"] for row in of_cluster if row["log"] == log} for log in ("request", "server"))
    missing = [uninformed_leaders(sorted(brokers - informed))] if brokers - informed else []
    return evidence_answer(
        evidence, request_log=True, missing=missing, notes=notes_of_brokers(lake, cluster_id, evidence)
    )
