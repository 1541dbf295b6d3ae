-- How long a dropped follower was out of the ISR; null when the log ends before it is back.
CREATE OR REPLACE TEMPORARY FUNCTION out_of_isr_ms(change_time TIMESTAMP, restored_time TIMESTAMP) RETURNS BIGINT
RETURN timestampdiff(MILLISECOND, change_time, restored_time)
