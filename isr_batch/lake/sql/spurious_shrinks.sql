-- Shrinks that should not have been made. This and the views of its kind show days whose replay is complete.
SELECT shrink_verdicts.* FROM shrink_verdicts
SEMI JOIN replayed_days ON shrink_verdicts.rule = replayed_days.rule AND shrink_verdicts.event_date = replayed_days.event_date
WHERE verdict = 'spurious'
