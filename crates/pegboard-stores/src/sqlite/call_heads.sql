-- Version 5: the head of a call is a JSON array, without the names that it has in common with the previous call.

UPDATE log_segments SET heads = (
    SELECT group_concat(json_array(value -> 'id', value -> 'session', value -> 'owner', value -> 'tool',
        value -> 'error', value -> 'started', value -> 'duration', value -> 'body') || char(10), '' ORDER BY key)
    FROM json_each('[' || rtrim(replace(heads, char(10), ','), ',') || ']')
)
WHERE kind = 'call';
