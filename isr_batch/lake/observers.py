"""Separate the ISR changes that brokers made to listed observers, which no rule of Kafka makes, from their others."""

import re
from typing import Any, Final

from isr_batch.lake.engines import engine_for
from isr_batch.lake.lake import Lake
from isr_batch.lake.sql_files import sql_texts
from isr_batch.lake.tables.contract import SET_KEY
from isr_batch.phrases import count_of

_TABLES: Final = ("observed_isr_changes", "leader_epochs")
OF_OBSERVERS: Final = re.sub(rf"\bFROM ({'|'.join(_TABLES)})\b", r"FROM {\1}", sql_texts()["changes_of_observers"])
"""SQL of the view ``changes_of_observers``, for a `LakeEngine` that is given the view's tables."""
OF_OTHERS: Final = f"""
    SELECT * FROM {{observed_isr_changes}} ANTI JOIN {{of_observers}} USING ({", ".join(SET_KEY)}, replica_id)
"""
"""SQL for the other rows of observed_isr_changes, given the result of `OF_OBSERVERS`."""


def left_out_of_clusters(lake: Lake) -> dict[str, str]:
    """Return the sentence on how many changes of observers are left out, by cluster. A cluster with none is absent."""
    with engine_for(lake, _TABLES) as engine:
        found = engine(OF_OBSERVERS, **{name: engine.table(name) for name in _TABLES})
        counts = engine("SELECT cluster_id, count(*) AS n FROM {found} AS found GROUP BY cluster_id", found=found)
        return {row["cluster_id"]: " ".join(sentences_on_observers(row["n"])) for row in engine.listed(counts)}


def changes_of_others(lake: Lake, cluster_id: str) -> list[dict[str, Any]]:
    """Return the rows of observed_isr_changes for a cluster, without those about listed observers."""
    with engine_for(lake, _TABLES) as engine:
        tables = {name: engine.table(name) for name in _TABLES}
        others = engine(OF_OTHERS, of_observers=engine(OF_OBSERVERS, **tables), **tables)
        where = f"cluster_id = {engine.literal(cluster_id)}"
        return engine.listed(engine(f"SELECT * FROM {{others}} AS others WHERE {where}", others=others))


def sentences_on_observers(number: int) -> list[str]:
    """Return the sentence that ``number`` changes of observers are left out, in a list; an empty list if it is 0."""
    it, its = ("is", "it") if number == 1 else ("are", "them")
    made = f"{count_of(number, 'ISR change')} that the brokers made to listed observers"
    return [f"{made} {it} left out, as no rule of Kafka makes {its}."] if number else []
