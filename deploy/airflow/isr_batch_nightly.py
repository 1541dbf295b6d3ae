"""Every night: ingest what is new, replay days, compare with the brokers, say what is stale; once a week upkeep.

Two DAGs: `isr_batch_logs` for brokers' logs, `isr_batch_table` for your own table of fetches. Each needs Airflow 3 with
`isr-batch` on the worker's PATH and the Variable `isr_batch_lake`; the one needs `isr_batch_logs` (a folder), the other
`isr_batch_table` (a path, or a name in Spark's catalog) and `isr_batch_mapping` (the YAML file that maps its columns).
Without `changes` in the mapping, leave out the task `validate`, which would end with code 3.
"""

from datetime import UTC, datetime, timedelta

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, Context

# Usage, input, quality gate, schema: an operator has to act (docs/killed-and-concurrent.md).
NOT_RETRIED = {2, 3, 4, 5}
LAKE = "--lake '{{ var.value.isr_batch_lake }}' --json"
INGEST = {
    "logs": f"isr-batch ingest kafka-logs '{{{{ var.value.isr_batch_logs }}}}' {LAKE}",
    "table": "isr-batch ingest table '{{ var.value.isr_batch_table }}'"
    f" --mapping '{{{{ var.value.isr_batch_mapping }}}}' {LAKE}",
}


class IsrBatch(BashOperator):
    """A command; it is tried again unless its exit code says that this would end in the same way."""

    def execute(self, context: Context) -> object:
        """Run the command."""
        try:
            return super().execute(context)
        except AirflowException as error:
            process = self.subprocess_hook.sub_process
            if process is not None and process.returncode in NOT_RETRIED:
                raise AirflowFailException(str(error)) from error
            raise


def nightly(source: str) -> DAG:
    """Make the DAG of one kind of source."""
    with DAG(
        f"isr_batch_{source}",
        # Fetches that wait at midnight are in the next day's first log.
        schedule="30 2 * * *",
        start_date=datetime(2026, 1, 1, tzinfo=UTC),
        catchup=False,
        # One run at a time writes results; a second one would end with exit code 6.
        max_active_runs=1,
        default_args={"retries": 3, "retry_delay": timedelta(minutes=10)},
        doc_md=__doc__,
    ) as dag:
        ingest = IsrBatch(task_id="ingest", bash_command=INGEST[source])
        # The days before the one on which it runs; `ds` is made of the logical date, and a run by hand has none.
        until = "--to '{{ dag_run.run_after | ds }}'"
        backfill = IsrBatch(task_id="backfill", bash_command=f"isr-batch backfill {until} {LAKE}")
        validate = IsrBatch(task_id="validate", bash_command=f"isr-batch validate {LAKE}")
        status = IsrBatch(task_id="status", bash_command=f"isr-batch status {LAKE}")
        maintain = IsrBatch(
            task_id="maintain",
            bash_command=f'test "$(date -u +%u)" != 7 || isr-batch maintain {LAKE}',
        )
        ingest >> backfill >> validate >> status >> maintain
    return dag


for kind in INGEST:
    globals()[f"isr_batch_{kind}"] = nightly(kind)
