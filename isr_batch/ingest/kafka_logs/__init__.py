"""Read broker logs into input tables: request log, server log, state-change log and decoded metadata log."""

from isr_batch.ingest.kafka_logs.read import KafkaLogs, read_kafka_logs, survey

__all__ = ["KafkaLogs", "read_kafka_logs", "survey"]
