"""The parts of a table's contract, and the columns that several contracts share."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Column:
    """A column: Spark type, meaning, and whether a row may lack it."""

    name: str
    type: str
    comment: str
    nullable: bool = True


def columns(ddl: str) -> tuple[Column, ...]:
    """Parse the columns of a contract, one per line: ``name TYPE [NOT NULL] -- comment``.

    A line that begins with ``--`` continues the comment of the line before.
    """
    found: list[Column] = []
    for line in filter(None, map(str.strip, ddl.splitlines())):
        definition, _, comment = line.partition("--")
        comment = comment.strip()
        if definition:
            name, column_type = definition.removesuffix(" NOT NULL ").split(maxsplit=1)
            found.append(Column(name, column_type.strip(), comment, nullable="NOT NULL" not in definition))
        else:
            found[-1] = replace(found[-1], comment=f"{found[-1].comment} {comment}")
    return tuple(found)


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
    """Whether Delta records the rows that a commit has added and removed."""

    @property
    def column_names(self) -> list[str]:
        """Names in table order."""
        return [column.name for column in self.columns]

    @property
    def schema_ddl(self) -> str:
        """Types only, as ``spark.createDataFrame`` and ``cast`` accept them."""
        return ", ".join(f"{column.name} {column.type}" for column in self.columns)


def key_columns(*names: str) -> tuple[Column, ...]:
    """Columns of a key, for contracts: each by name with its type and meaning."""
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
SOURCE = columns("""
    source_file STRING -- log file that the row was read from, relative to the ingested folder
    source_line BIGINT -- line in that file, from 1
""")
RULE = columns("""
    rule STRING NOT NULL -- rule id, as in `isr-batch rules list`
    params_json STRING NOT NULL -- the rule's parameters in this replay, as JSON with sorted keys
""")
KEY_CHECKS = {"partition_from_0": "partition_id >= 0", "epoch_known": "leader_epoch >= -1"}
