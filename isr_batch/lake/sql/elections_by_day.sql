-- Elections that the controller recorded, by kind, and how often a change of min.insync.replicas emptied the ELR of one topic or of all topics.
SELECT
  cluster_id,
  event_date,
  count_if(election = 'in_sync') AS in_sync,
  count_if(election = 'eligible') AS eligible,
  count_if(election = 'last_known_leader') AS last_known_leader,
  count_if(election = 'unclean') AS unclean,
  count_if(election = 'nobody') AS nobody,
  count(DISTINCT CASE WHEN kind = 'cleared' THEN record_offset END) AS elr_cleared
FROM controller_records
GROUP BY cluster_id, event_date
