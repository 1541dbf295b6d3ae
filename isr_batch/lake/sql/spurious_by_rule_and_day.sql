-- How many shrinks each rule makes on a day, and how many of them are mistakes, by cause.
SELECT
  cluster_id,
  rule,
  params_json,
  event_date,
  count(*) AS shrinks,
  count_if(verdict = 'spurious') AS spurious,
  count_if(verdict = 'genuine') AS genuine,
  count_if(verdict = 'excluded') AS excluded,
  count_if(verdict = 'unknown') AS unknown,
  count_if(primary_cause = 'caught_up') AS caught_up,
  count_if(primary_cause = 'keeping_pace') AS keeping_pace,
  count_if(primary_cause = 'slow_leader') AS slow_leader,
  count_if(primary_cause = 'unacked_only') AS unacked_only
FROM shrink_verdicts
SEMI JOIN replayed_days USING (rule, event_date)
GROUP BY cluster_id, rule, params_json, event_date
