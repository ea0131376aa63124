-- What `verify` looks at again. `picked` and `chosen` as in plan.sql.

-- name: groups
-- Judged groups in an order that follows from $seed alone, bounded by what their verdicts covered.
WITH page AS (
    SELECT *, md5(group_id::VARCHAR || $seed::VARCHAR) AS place
    FROM group_state
    WHERE judged_sweep IS NOT NULL
      AND query_hash IS NOT NULL
      AND policy IN (SELECT unnest($policies::VARCHAR[]))
      AND (NOT $by_namespace OR namespace = $namespace::VARCHAR)
      AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen))
    ORDER BY place
    LIMIT $limit
)
SELECT p.namespace, p.group_id, g.name, g.query, p.query_hash, p.policy, p.items, p.chars,
       p.judged_seq AS last_seq, p.judged_seq, p.judged_sweep, p.priority, p.deadline, p.first_seq
FROM page p
JOIN item_group g ON g.group_id = p.group_id
ORDER BY p.place;

-- name: verdicts
SELECT v.group_id, v.seq, i.item_id, i.text_hash, v.decision, v.rank, v.logit, v.model_key
FROM picked p
JOIN group_state s ON s.group_id = p.group_id
JOIN verdict v ON v.sweep_id = s.judged_sweep AND v.group_id = p.group_id
JOIN item i ON i.seq = v.seq
WHERE v.seq BETWEEN $first AND $last AND s.first_seq BETWEEN $first AND $last AND i.seq BETWEEN $first AND $last
ORDER BY p.ord, v.seq;

-- name: summarised
-- Groups whose current summary a model wrote from their current verdicts.
SELECT DISTINCT p.group_id
FROM picked p
JOIN group_state s ON s.group_id = p.group_id
JOIN summary y ON y.summary_seq = s.summary_seq AND y.group_id = p.group_id
WHERE y.status = 'done' AND y.calls > 0 AND y.judged_sweep = s.judged_sweep;

-- name: replies
-- By prompt; where several models answered, the one that is configured, else the newest.
SELECT r.prompt_hash, r.text, r.model_key
FROM reply r
JOIN wanted w USING (prompt_hash)
WHERE r.finish_reason = 'stop' AND r.error IS NULL
QUALIFY row_number() OVER (PARTITION BY r.prompt_hash ORDER BY r.model_key = $model_key DESC, r.rowid DESC) = 1;
