-- What could not be read, and what becomes of it.

-- name: list
SELECT quarantine_id, source, line, reason, detail, octet_length(raw) AS bytes, quarantined_at, segment_id
FROM quarantine
WHERE ($reason IS NULL OR reason = $reason)
ORDER BY quarantined_at DESC, source, line
LIMIT $limit;

-- name: reasons
SELECT reason, count(*) FROM quarantine GROUP BY reason ORDER BY count(*) DESC, reason;

-- name: by_tail
SELECT quarantine_id FROM quarantine WHERE ends_with(replace(quarantine_id::VARCHAR, '-', ''), $tail);

-- name: all_ids
SELECT quarantine_id FROM quarantine WHERE ($reason IS NULL OR reason = $reason) ORDER BY quarantined_at, source, line;

-- name: raw
SELECT q.quarantine_id, q.source, q.line, q.reason, q.detail, q.raw, q.quarantined_at
FROM quarantine q SEMI JOIN wanted w ON w.quarantine_id = q.quarantine_id;

-- name: drop
DELETE FROM quarantine WHERE quarantine_id IN (SELECT quarantine_id FROM wanted);
