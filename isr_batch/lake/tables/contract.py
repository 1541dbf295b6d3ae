"""Classes that describe a table (its contract), and columns that several tables share."""

from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Column:
    """A column of a table: its name, Spark type and meaning, and whether it may be null."""

    name: str
    type: str
    comment: str
    nullable: bool = True

    @property
    def ddl_type(self) -> str:
        """The type to write in DDL. It is TIMESTAMP_LTZ for TIMESTAMP, whose meaning depends on a session setting."""
        return "TIMESTAMP_LTZ" if self.type == "TIMESTAMP" else self.type


def columns(ddl: str) -> tuple[Column, ...]:
    """Parse column definitions, one per line: ``name TYPE [NOT NULL] -- comment``.

    A line that begins with ``--`` continues the comment of the previous line.
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
    """A table's contract: its columns in order, its SQL constraints by name, and the columns that define its layout."""

    name: str
    comment: str
    columns: tuple[Column, ...]
    constraints: dict[str, str] = field(default_factory=dict)
    partitioned_by: tuple[str, ...] = ()
    skipped_by: tuple[str, ...] = ()
    """Columns whose minimum and maximum Delta stores for each file. If it is empty, Delta's default applies: the first
    32 columns."""
    change_feed: bool = False
    """Whether Delta's change data feed records the rows that each commit adds and removes."""

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]

    @property
    def schema_ddl(self) -> str:
        """Names and types of the columns as Spark DDL, such as ``cluster_id STRING, topic STRING``."""
        return ", ".join(f"{column.name} {column.ddl_type}" for column in self.columns)


def key_columns(*names: str) -> tuple[Column, ...]:
    """Return the key columns with these names: NOT NULL, with the same types and comments in all tables."""
    known = {
        "cluster_id": ("STRING", "name of the cluster, as the ingest was given it or found it in the names of folders"),
        "topic": ("STRING", "topic name; its id if no log has the name"),
        "partition_id": ("INT", "partition number within the topic"),
        "leader_epoch": ("INT", "Kafka's leader epoch, which identifies one term of one leader"),
        "leader_id": ("INT", "broker that leads the partition; times in the row are by the clock of this broker"),
        "broker_id": ("INT", "id of the broker"),
    }
    return tuple(Column(name, *known[name], nullable=False) for name in names)


SET_KEY = ("cluster_id", "topic", "partition_id", "leader_epoch", "leader_id")
SET = key_columns(*SET_KEY)
DATE = Column("event_date", "DATE", "UTC day of the row's time; the table is partitioned by it", nullable=False)
SOURCE = columns("""
    source_file STRING -- log file that the row was read from, relative to the ingested folder
    source_line BIGINT -- line in source_file, from 1
""")
RULE = columns("""
    rule STRING NOT NULL -- name of the rule, as `isr-batch rules list` prints it
    params_json STRING NOT NULL -- parameters of the rule run, as JSON with sorted keys
""")
KEY_CHECKS = {"partition_from_0": "partition_id >= 0", "epoch_known": "leader_epoch >= -1"}
