"""Find missing logs that hide shrinks: a server.log, or its lines at INFO."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Final

from isr_batch.evidence.evidence_table import Row
from isr_batch.phrases import brokers_text

AT_ONCE: Final = timedelta(seconds=1)
"""Logs of a broker that begin within this time begin together."""


def missing_logs(coverage: Iterable[Row], brokers: Collection[int], with_server_log: Collection[int]) -> list[str]:
    """List the brokers whose server.log is missing, has no lines at INFO, or begins later than state-change.log.

    Parameters
    ----------
    coverage : iterable of dict
        Rows of the table of one cluster: broker_id, log, from_time. A server.log without lines at INFO has no row.
    brokers : collection of int
        Brokers with logs.
    with_server_log : collection of int
        Those that have a server.log.
    """
    begins = {(row["broker_id"], row["log"]): row["from_time"] for row in coverage}
    said = []
    if none := sorted(set(brokers) - set(with_server_log)):
        said.append(f"server.log of {brokers_text(none)} is missing: what leaders dropped is only there.")
    if silent := [broker for broker in sorted(with_server_log) if (broker, "server") not in begins]:
        said.append(
            f"server.log of {brokers_text(silent)} has lines of WARN and ERROR only, and whom leaders drop is logged "
            "at INFO: set the logger kafka.cluster.Partition to INFO."
        )
    late: dict[str, list[int]] = defaultdict(list)
    for broker in sorted(with_server_log):
        begin, other = begins.get((broker, "server")), begins.get((broker, "state-change"))
        if begin and other and begin - other > AT_ONCE:
            late[f"{begin:%H:%M:%S}"].append(broker)
    if late:
        since = ", ".join(f"at {begin} ({brokers_text(ids)})" for begin, ids in sorted(late.items()))
        said.append(f"server.log begins {since}, after state-change.log: what leaders dropped before is not known.")
    return said
