"""The part of `isr-batch run` for logs without follower fetches: it reports what server.log alone shows."""

from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.ingest_cli import LogsOfCommand, ingest_logs_of_command
from pipelines.job import Job, recorded_job

if TYPE_CHECKING:
    from isr_batch.errors import NothingToReplayError


def run_evidence_command(job: Job, logs: LogsOfCommand, file: Path, nothing: "NothingToReplayError") -> None:
    """Ingest logs that contain no follower fetches, print what server.log shows about shrinks, and write the report.

    Nothing is replayed.

    Parameters
    ----------
    job : Job
    logs : LogsOfCommand
        The logs to ingest.
    file : Path
        HTML report to write.
    nothing : NothingToReplayError
        Its message is printed as the reason why nothing is replayed.
    """
    from isr_batch.broker_lines.kinds import METADATA
    from isr_batch.evidence.answer import COLUMNS, answer_table, evidence_answer
    from isr_batch.evidence.evidence_table import read_evidence_table
    from isr_batch.evidence.missing_logs import metadata_alone, missing_logs, returns_alone
    from isr_batch.evidence.notes_of_brokers import notes_of_brokers
    from isr_batch.evidence.questions import answer_questions
    from isr_batch.ingest.folder.folder_warnings import brokers_with_logs, listing_sentences
    from isr_batch.lake.arrow_read import read_columns
    from isr_batch.lake.observers import changes_of_others, left_out_of_clusters
    from isr_batch.report.evidence_page import write_evidence_page

    with recorded_job(job, "run") as done:
        ingest_logs_of_command(job, done, logs)
        evidence = {name: read_evidence_table(job.lake, name) for name in logs.clusters}
        missing = {
            name: missing_logs(
                read_columns(job.lake, "coverage", ("broker_id", "log", "from_time"), {"cluster_id": name}).to_pylist(),
                *brokers_with_logs(found),
            )
            for name, (_, found) in logs.clusters.items()
        }
        for name, (_, found) in logs.clusters.items():
            has_broker_logs = any(each.broker_id is not None for each in found.files)
            if not has_broker_logs and not found.of_kind(METADATA):
                missing[name] = listing_sentences(found)
            elif not has_broker_logs or not evidence[name].num_rows:
                changes = changes_of_others(job.lake, name)
                missing[name] += returns_alone(changes) if has_broker_logs else metadata_alone(changes)
        for name, left_out in left_out_of_clusters(job.lake).items():
            if name in missing:
                missing[name].append(left_out)
        answers = {
            name: evidence_answer(rows, missing=missing[name], notes=notes_of_brokers(job.lake, name, rows))
            for name, rows in evidence.items()
        }
        for name, warnings in logs.warnings(job.lake).items():
            answers[name] += [said for said in warnings if said not in answers[name]]
        with job.out.step(f"write {file}"):
            write_evidence_page(evidence, file, answers)
        for name, rows in evidence.items():
            shown = answer_table(rows)
            more = f", the first {len(shown)} of {rows.num_rows}" if len(shown) < rows.num_rows else ""
            job.out.details(f"Replicas that left the ISR in {name}{more}", shown, COLUMNS)
            said, asked = answers[name], answer_questions(rows)
            if job.out.as_json:
                job.out.say(cluster=name, answer=said, questions=[one._asdict() for one in asked])
            else:
                missing_answers = [f"{one.question} {one.answer}" for one in asked if not one.known]
                job.out.text([f"{name}: {said[0]}", *said[1:], *missing_answers])
        job.out.say(nothing_replayed=nothing.message, tables=job.lake.root, report=file, run=job.lake.run_id)
