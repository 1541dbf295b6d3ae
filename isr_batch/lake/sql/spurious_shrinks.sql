-- Shrinks with verdict spurious. Like the other views of shrinks, it only shows days whose replay is complete.
SELECT shrink_verdicts.* FROM shrink_verdicts
SEMI JOIN replayed_days ON shrink_verdicts.rule = replayed_days.rule AND shrink_verdicts.event_date = replayed_days.event_date
WHERE verdict = 'spurious'
