-- Lag time (replica.lag.time.max.ms) of the rule run of a row.
CREATE OR REPLACE TEMPORARY FUNCTION lag_time_ms(params_json STRING) RETURNS BIGINT
RETURN CAST(get_json_object(params_json, '$.replica_lag_time_max_ms') AS BIGINT)
