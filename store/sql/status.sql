-- How the ledger stands.

-- name: counts
SELECT
    (SELECT count(*) FROM item),
    (SELECT count(*) FROM item_group),
    (SELECT count(*) FROM text),
    (SELECT count(*) FROM quarantine),
    (SELECT coalesce(sum(overflowed), 0)::BIGINT FROM segment),
    (SELECT coalesce(sum(refused), 0)::BIGINT FROM segment),
    (SELECT coalesce(sum(rows), 0)::BIGINT FROM segment),
    (SELECT count(*) FROM score),
    (SELECT count(*) FROM verdict);

-- name: groups
-- Items that wait are counted by seq: those of a reopened group all wait.
SELECT
    count(*) FILTER (last_seq > judged_seq AND query_hash IS NOT NULL AND (closed OR due_at <= $quiet_since)),
    min(due_at) FILTER (last_seq > judged_seq AND query_hash IS NOT NULL AND (closed OR due_at <= $quiet_since)),
    count(*) FILTER (last_seq > judged_seq AND query_hash IS NOT NULL AND NOT (closed OR due_at <= $quiet_since)),
    count(*) FILTER (query_hash IS NULL),
    coalesce(sum(items) FILTER (query_hash IS NULL), 0)::BIGINT,
    count(*) FILTER (judged_sweep IS NOT NULL),
    count(*) FILTER (judged_sweep IS NOT NULL AND summarised_from IS DISTINCT FROM judged_sweep
                     AND query_hash IS NOT NULL)
FROM group_state;

-- name: pending_items
SELECT count(*), count(DISTINCT i.group_id)
FROM item i
JOIN group_state s ON s.group_id = i.group_id
WHERE s.last_seq > s.judged_seq AND s.query_hash IS NOT NULL AND i.seq > s.judged_seq;

-- name: decisions
SELECT decision, count(*) FROM current_verdict GROUP BY decision;

-- name: summaries
SELECT status, count(*) FROM current_summary GROUP BY status;

-- name: last_sweep
SELECT sweep_id, started, ended, outcome FROM sweep ORDER BY number DESC LIMIT 1;

-- name: last_good_sweep
SELECT sweep_id, started, ended, outcome FROM sweep
WHERE outcome IN ('done', 'nothing_due', 'stopped') ORDER BY number DESC LIMIT 1;
