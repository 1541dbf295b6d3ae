# %% [markdown]
# # Exploring shrinks
#
# A notebook in the percent format: VS Code, PyCharm and jupytext open it cell by cell, and
# `.venv/bin/python docs/explore.py LAKE` runs it as it is. `make run` makes the lake `build/lake`.

# %%
import sys
from pathlib import Path

import altair as alt

from isr_batch.lake.lake import Lake
from isr_batch.session import start_session
from isr_batch.settings import SparkSettings

LAKE = sys.argv[1] if len(sys.argv) > 1 else "build/lake"
PICTURE = Path(sys.argv[2] if len(sys.argv) > 2 else "shrinks.html")
lake = Lake(start_session(SparkSettings()), LAKE)

# %% [markdown]
# Which leaders drop followers without reason, under the rule that runs today?

# %%
leaders, _ = lake.query("""
    SELECT cluster_id, leader_id, spurious, slow_leader, partitions
    FROM spurious_by_leader WHERE rule = 'kafka-3.7' ORDER BY spurious DESC
""")
for row in leaders:
    print(row)

# %% [markdown]
# Does it happen right after the leader was silent? The time from the end of its last silence to each spurious shrink.

# %%
woken, _ = lake.query("""
    WITH silences AS (SELECT cluster_id, broker_id AS leader_id, end_time FROM broker_events WHERE kind = 'silent')
    SELECT topic, partition_id, replica_id, change_time, primary_cause,
      timestampdiff(MILLISECOND, max(end_time), change_time) AS since_silence_ms
    FROM spurious_shrinks JOIN silences USING (cluster_id, leader_id)
    WHERE rule = 'kafka-3.7' AND end_time <= change_time
    GROUP BY topic, partition_id, replica_id, change_time, primary_cause
    ORDER BY since_silence_ms
""")
print(f"{len(woken)} of {sum(row['spurious'] for row in leaders)} mistakes come after a silence of their leader")

# %% [markdown]
# And how long is a follower out, by rule and verdict?

# %%
outages, _ = lake.query("""
    SELECT rule, verdict, out_of_isr_ms(change_time, restored_time) / 1000 AS seconds
    FROM shrink_verdicts
    WHERE restored_time IS NOT NULL AND verdict IN ('spurious', 'genuine')
""")
picture = (
    alt.Chart({"values": outages})
    .mark_tick(thickness=2)
    .encode(
        x=alt.X("seconds:Q", title="out of the ISR, s", scale=alt.Scale(type="symlog", constant=0.01)),
        y=alt.Y("rule:N", title=None),
        color="verdict:N",
    )
    .properties(width=600)
)
picture.save(PICTURE, inline=True)
print(f"{len(outages)} outages in {PICTURE}")

# %% [markdown]
# How does lag grow? On an idle partition, it is the time since the last fetch under the rule of Kafka 0.10.2, and 0
# under today's. A row of `replica_timeline` is valid until the next one: each is drawn as a line up to the lag then.

# %%
lags, _ = lake.query("""
    SELECT rule, time, next_time, lag_ms,
      CASE WHEN lag_grows THEN unix_millis(next_time) - last_caught_up_time_ms ELSE lag_ms END AS lag_until_ms
    FROM (
      SELECT *, lead(time) OVER (PARTITION BY rule, params_json, leader_id, replica_id ORDER BY time) AS next_time
      FROM replica_timeline
      WHERE rule IN ('kafka-0.10.2', 'kafka-3.7') AND replica_id = 2
        AND cluster_id = 'leader-stop' AND topic = 'idle' AND partition_id = 0
    )
    WHERE time BETWEEN TIMESTAMP'2026-11-21 16:30:30' AND TIMESTAMP'2026-11-21 16:31:30' AND next_time IS NOT NULL
""")
lines = (
    alt.Chart({"values": [{**row, "time": str(row["time"]), "next_time": str(row["next_time"])} for row in lags]})
    .mark_rule()
    .encode(
        x=alt.X("time:T", title="UTC"),
        x2="next_time:T",
        y=alt.Y("lag_ms:Q", title="lag of broker 2, ms"),
        y2="lag_until_ms:Q",
        row=alt.Row("rule:N", title=None),
    )
    .properties(width=600, height=150)
)
lines.save(PICTURE.with_name("lag.html"), inline=True)
print(f"lag grows to {max(row['lag_until_ms'] for row in lags)} ms in {PICTURE.with_name('lag.html')}")
