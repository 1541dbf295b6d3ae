"""A command as a task of a job: tried again after some exit codes, as Databricks' own retries know none."""

import sys
import time

# Another run is writing, and a worker that died (docs/killed-and-concurrent.md). If this process dies itself, the next
# night replays what is missing.
RETRIED = {6, 70}
WAITS_S = (600, 600, 600)


def run(args: list[str], waits_s: tuple[int, ...] = WAITS_S) -> None:
    """Run a command until it ends with another code, or for the last time."""
    from pipelines.cli import main

    for wait_s in (*waits_s, None):
        try:
            main(args)
        except SystemExit as ended:
            if not ended.code:
                return  # the task ends well where it ends by itself
            if ended.code not in RETRIED or wait_s is None:
                raise
            time.sleep(wait_s)


if __name__ == "__main__":
    run(sys.argv[1:])
