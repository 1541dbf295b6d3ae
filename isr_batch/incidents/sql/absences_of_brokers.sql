-- When the broker at fault in an incident was absent: during its silences or, without any, from when the first follower was last
-- caught up until the first drop. over_us: when the broker and its followers were back in the ISRs. number: the incident's number.
SELECT
  number, cluster_id, fault_id AS broker_id,
  coalesce(silent_from_us, since_us) AS from_us, coalesce(silent_until_us, first_us) AS until_us,
  coalesce(silent_us, first_us - since_us) AS absent_us,
  greatest(last_us, coalesce(silent_until_us, last_us), coalesce(restored_us, last_us)) AS over_us
FROM incidents
WHERE fault_id IS NOT NULL AND (silent_us IS NOT NULL OR genuine > 0 OR unknown > 0)
