-- Shrinks that should not have been made.
SELECT * FROM shrink_verdicts WHERE verdict = 'spurious'
