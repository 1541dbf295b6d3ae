"""Options for delta-rs from a location that Spark knows."""

from pathlib import Path

import pytest
from deltalake.exceptions import TableNotFoundError

from isr_batch.errors import UsageError
from isr_batch.lake.delta_files.stores import Store, store_of

S3 = {
    "fs.s3a.access.key": "key", "fs.s3a.secret.key": "hidden", "fs.s3a.bucket.mine.secret.key": "its own",
    "fs.s3a.endpoint": "127.0.0.1:9000", "fs.s3a.connection.ssl.enabled": "false", "fs.s3a.path.style.access": "true",
}  # fmt: skip


def nothing(_: str) -> None:
    """A configuration without settings."""


def test_a_folder() -> None:
    assert store_of("file:/tmp/a b/lake/replica_states", nothing) == Store("/tmp/a b/lake/replica_states")


def test_s3_as_hadoop_has_it() -> None:
    store = store_of("s3a://bucket/lake/t", S3.get)
    assert store.uri == "s3://bucket/lake/t"
    assert store.options == {
        "aws_access_key_id": "key", "aws_secret_access_key": "hidden", "aws_endpoint_url": "http://127.0.0.1:9000",
        "allow_http": "true", "aws_virtual_hosted_style_request": "false",
    }  # fmt: skip
    assert "hidden" not in repr(store)
    assert store_of("s3a://mine/lake/t", S3.get).options["aws_secret_access_key"] == "its own"
    assert store_of("s3a://bucket/lake/t", nothing).options == {}  # the environment, a profile or a role


def test_azure_as_hadoop_has_it() -> None:
    key = {"fs.azure.account.key.me.dfs.core.windows.net": "hidden"}
    store = store_of("abfss://box@me.dfs.core.windows.net/lake/t", key.get)
    assert store.options == {"azure_storage_account_name": "me", "azure_storage_account_key": "hidden"}


@pytest.mark.parametrize(
    ("location", "message"), [("dbfs:/lake/t", "dbfs: addresses"), ("file:/tmp/a%20b/t", "a path with a %")]
)
def test_places_that_are_out_of_reach(location: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        store_of(location, nothing)
    assert "--timelines none" in refused.value.hint


@pytest.mark.parametrize("address", ["{}", "file://{}"])
def test_a_table_that_is_not_there(tmp_path: Path, address: str) -> None:
    with pytest.raises(TableNotFoundError):
        Store(address.format(tmp_path)).table()


def test_a_store_that_is_not_reached() -> None:
    options = {"aws_endpoint_url": "http://127.0.0.1:1", "allow_http": "true", "aws_region": "us-east-1"}
    secret = {"aws_access_key_id": "key", "aws_secret_access_key": "do-not-show-this", "max_retries": "1"}
    store = Store("s3://bucket/lake", options | secret)
    assert not store.is_reached()
    with pytest.raises(UsageError, match="delta-rs, which writes timelines, does not") as error:
        store.table()
    assert "do-not-show-this" not in str(error.value)
