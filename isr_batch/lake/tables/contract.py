"""What a table's contract is made of, and what several of them share."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Column:
    """A column: Spark type, meaning, and whether a row may lack it."""

    name: str
    type: str
    comment: str
    nullable: bool = True


@dataclass(frozen=True, eq=False)
class Table:
    """A table: its columns in order, constraints by name, and the columns that lay it out on disk."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    constraints: dict[str, str] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    skipped_by: tuple[str, ...] = ()
    """Columns whose least and largest values Delta keeps of each file; of a table with few rows, the first 32."""
    change_feed: bool = False
    """Whether Delta tells which rows a commit has put in and taken out."""

    @property
    def column_names(self) -> list[str]:
        """Names in table order."""
        return [column.name for column in self.columns]

    @property
    def schema_ddl(self) -> str:
        """Types only, as ``spark.createDataFrame`` and ``cast`` take them."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)


def key_columns(*names: str) -> tuple[Column, ...]:
    """Columns of a key, by name, each with its type and meaning."""
    known = {
        "cluster_id": ("STRING", "name given to the cluster when its logs were ingested"),
        "topic": ("STRING", "topic name, or its id where no log gives the name"),
        "partition_id": ("INT", "partition number within the topic"),
        "leader_epoch": ("INT", "Kafka's leader epoch: one term of one leader"),
        "leader_id": ("INT", "broker that leads in this term, and whose log and clock the row is from"),
        "broker_id": ("INT", "broker"),
    }
    return tuple(Column(name, *known[name], nullable=False) for name in names)


SET_KEY = ("cluster_id", "topic", "partition_id", "leader_epoch", "leader_id")
SET = key_columns(*SET_KEY)
DATE = Column("event_date", "DATE", "UTC day of the row's time; the table is partitioned by it", nullable=False)
SOURCE = (
    Column("source_file", "STRING", "log file that the row was read from, relative to the ingested folder"),
    Column("source_line", "BIGINT", "line in that file, from 1"),
)
RULE = (
    Column("rule", "STRING", "rule id, as in `isr-batch rules list`", nullable=False),
    Column("params_json", "STRING", "the rule's parameters in this replay, as JSON with sorted keys", nullable=False),
)
KEY_CHECKS = {"partition_from_0": "partition_id >= 0", "epoch_known": "leader_epoch >= -1"}
