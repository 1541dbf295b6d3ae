-- Shrinks that should not have been made. This and the views of its kind show days whose replay is complete.
SELECT * FROM shrink_verdicts
SEMI JOIN replayed_days USING (rule, event_date)
WHERE verdict = 'spurious'
