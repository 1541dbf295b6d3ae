"""Mappings as arguments: with sections, or short, as a dict of the columns that have other names."""

import pyarrow as pa
import pytest

import isr_batch
from isr_batch.api.given import given_mapping
from isr_batch.errors import UsageError
from tests.unit.api.test_column_types import FETCHES, IN_US


def test_a_mapping_that_names_the_cluster() -> None:
    """By its name or by a column; a name that is also a column would put all clusters into one."""
    rows = FETCHES
    given = given_mapping({**IN_US, "cluster_id": {"column": "topic"}}, {"fetches": rows.schema})
    assert (given.cluster_id.column, given.fetches.columns.replica_id.column) == ("topic", "follower")
    named = rows.rename_columns({"leader": "leader_id", "follower": "replica_id", "offset": "fetch_offset"})
    named = named.append_column("handled_time", rows["handled_us"].cast(pa.timestamp("us", "UTC")))
    assert given_mapping({"cluster_id": "prod-1"}, {"fetches": named.schema}).cluster_id.constant == "prod-1"
    for mapping in ({"cluster_id": "topic"}, None):
        wrong = named.append_column("cluster", rows["topic"])
        with pytest.raises(UsageError, match=r"cluster_id: (topic|cluster) is the name of the cluster, and"):
            isr_batch.analyze(wrong, mapping=mapping)
