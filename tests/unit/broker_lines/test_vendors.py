"""Vendors' version numbers and the Kafka releases behind them."""

import pytest

from isr_batch.broker_lines.vendors import apache_release, vendor_release
from udfs.rules import rule_of_release


@pytest.mark.parametrize(
    ("printed", "release", "rule"),
    [
        ("4.1.0", "4.1.0", "kafka-3.7"),
        ("2.1.1", "2.1.1", "kafka-2.1"),
        ("0.10.2.1", "0.10.2.1", "kafka-0.10.2"),
        ("0.10.2.1-cp2", "0.10.2.1", "kafka-0.10.2"),
        ("5.5.1-ccs", "2.5", "kafka-2.1"),
        ("6.0.0-ce", "2.6", "kafka-2.1"),
        ("6.2.1-ccs", "2.8", "kafka-2.7"),
        ("7.6.1-ccs", "3.6", "kafka-3.3"),
        ("7.9.0-ce", "3.9", "kafka-3.7"),
        ("8.0.0-ccs", "4.0", "kafka-3.7"),
        ("2.5.0.7.1.7.0-551", "2.5.0", "kafka-2.1"),
        ("2.0.0.3.1.0.0-78", "2.0.0", "kafka-0.10.2"),
        ("3.7.0.redhat-00007", "3.7.0", "kafka-3.7"),
        ("3.6.2-SNAPSHOT", "3.6.2-SNAPSHOT", "kafka-3.3"),
    ],
)
def test_a_printed_version_leads_to_the_rule_of_its_kafka_release(printed: str, release: str, rule: str) -> None:
    named = vendor_release(printed)
    assert named is not None
    assert named.startswith(printed)
    assert apache_release(named) == release
    assert rule_of_release(apache_release(named)) == rule


@pytest.mark.parametrize("printed", ["unknown", "9.0.0-ccs", "6.5.0-ccs", "", "v3"])
def test_a_version_that_is_not_known_is_none(printed: str) -> None:
    assert vendor_release(printed) is None
