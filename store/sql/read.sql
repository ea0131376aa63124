-- What readers see. Ids as text, so that they need nothing special to be used.

-- name: verdict_groups
SELECT group_id, first_seq, last_seq, items
FROM group_state
WHERE judged_sweep IS NOT NULL AND first_seq > $after AND change > $since
  AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen))
  AND (NOT $by_namespace OR namespace = $namespace::VARCHAR)
ORDER BY first_seq
LIMIT 10000;

-- name: verdict_rows
-- Of the groups in `picked`, whose items lie between $first and $last.
WITH mine AS (
    SELECT v.*, i.item_id, i.text_hash, i.run_id, i.step, i.kind, i.agent, i.chars, i.flags, i.meta, i.created_at,
           s.first_seq
    FROM picked p
    JOIN group_state s ON s.group_id = p.group_id
    JOIN verdict v ON v.sweep_id = s.judged_sweep AND v.group_id = p.group_id
    JOIN item i ON i.seq = v.seq
    WHERE v.seq BETWEEN $first AND $last
      AND i.seq BETWEEN $first AND $last
      AND ($run::VARCHAR IS NULL OR i.run_id = $run::VARCHAR)
      AND ($seq::BIGINT IS NULL OR v.seq = $seq::BIGINT)
      AND ($keep::BOOLEAN IS NULL OR (v.decision = 'keep') = $keep::BOOLEAN)
    ORDER BY s.first_seq, v.rank NULLS LAST, v.seq
    LIMIT $limit
)
SELECT m.item_id::VARCHAR AS item_id, g.namespace, m.group_id::VARCHAR AS group_id, g.name AS group,
       m.run_id AS run, m.step, m.kind, m.agent, g.query, g.policy, m.decision, m.rank, m.logit, m.probability,
       m.reason, d.item_id::VARCHAR AS duplicate_of, c.excerpt_start, c.excerpt_end,
       CASE WHEN $text OR NOT $kept_text OR m.decision = 'keep'
            THEN substring(t.text, c.excerpt_start + 1, c.excerpt_end - c.excerpt_start) END AS excerpt,
       CASE WHEN $text OR ($kept_text AND m.decision = 'keep') THEN t.text END AS text,
       m.chars, CASE WHEN t.text_hash IS NULL THEN list_append(m.flags, 'text_pruned') ELSE m.flags END AS flags,
       m.meta::VARCHAR AS meta, m.created_at, m.model_key,
       m.policy_hash::VARCHAR AS policy_hash, m.sweep_id::VARCHAR AS sweep_id, m.seq
FROM mine m
JOIN item_group g ON g.group_id = m.group_id
LEFT JOIN text t ON t.text_hash = m.text_hash
LEFT JOIN item d ON d.seq = m.duplicate_of
LEFT JOIN score c ON c.score_seq = m.score_seq
ORDER BY m.first_seq, m.rank NULLS LAST, m.seq;

-- name: summary_groups
SELECT group_id, first_seq, last_seq, 1 AS items
FROM group_state
WHERE summary_seq > 0 AND first_seq > $after AND change > $since
  AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen))
  AND (NOT $by_namespace OR namespace = $namespace::VARCHAR)
ORDER BY first_seq
LIMIT 10000;

-- name: summary_rows
WITH mine AS (
    SELECT y.*, s.first_seq, y.judged_sweep IS DISTINCT FROM s.judged_sweep AS stale
    FROM picked p
    JOIN group_state s ON s.group_id = p.group_id
    JOIN summary y ON y.summary_seq = s.summary_seq
    WHERE $status::VARCHAR IS NULL OR y.status = $status::VARCHAR
    ORDER BY s.first_seq, y.item_seq NULLS FIRST
    LIMIT $limit
)
SELECT g.namespace, m.group_id::VARCHAR AS group_id, g.name AS group, g.query, g.policy,
       i.item_id::VARCHAR AS item_id, m.status, m.stale, m.text, m.points::VARCHAR AS points,
       m.output::VARCHAR AS output, m.reason, m.model_key, m.finish_reason, m.prompt_tokens, m.output_tokens,
       m.left_out, m.calls, m.levels, m.written_at, m.sweep_id::VARCHAR AS sweep_id,
       m.judged_sweep::VARCHAR AS judged_sweep
FROM mine m
JOIN item_group g ON g.group_id = m.group_id
LEFT JOIN item i ON i.seq = m.item_seq
ORDER BY m.first_seq, m.item_seq NULLS FIRST;

-- name: sweeps
SELECT number, sweep_id, started, ended, outcome, config::VARCHAR, account::VARCHAR
FROM sweep
ORDER BY number DESC
LIMIT $limit;

-- name: sweep
SELECT number, sweep_id, started, ended, outcome, config::VARCHAR, account::VARCHAR
FROM sweep
WHERE sweep_id = $sweep::UUID;

-- name: items_by_tail
-- The last of a UUID's groups of digits has 12; a longer tail is compared without the dashes.
SELECT item_id, seq, namespace, group_id
FROM item
WHERE CASE WHEN length($tail) <= 12 THEN ends_with(item_id::VARCHAR, $tail)
           ELSE ends_with(replace(item_id::VARCHAR, '-', ''), $tail) END
LIMIT 20;

-- name: groups_by_tail
SELECT group_id, namespace, name FROM item_group
WHERE ends_with(replace(group_id::VARCHAR, '-', ''), $tail) LIMIT 20;

-- name: sweeps_by_tail
SELECT sweep_id FROM sweep WHERE ends_with(replace(sweep_id::VARCHAR, '-', ''), $tail) LIMIT 20;

-- name: groups_by_name
SELECT group_id, namespace, name FROM item_group WHERE name = $name ORDER BY namespace, group_id;

-- name: near_names
SELECT DISTINCT name FROM item_group
WHERE name IS NOT NULL ORDER BY jaro_winkler_similarity(name, $name) DESC, name LIMIT 3;

-- name: diff
-- Each item's last verdict up to sweep $a against its last up to sweep $b; only what was judged between differs.
WITH told AS (
    SELECT v.seq, w.number, (v.decision, v.rank, v.logit, v.reason, v.model_key, v.policy_hash) AS v
    FROM verdict v JOIN sweep w ON w.sweep_id = v.sweep_id
),
later AS (
    SELECT seq, arg_max(v, number) AS v FROM told WHERE number > $a AND number <= $b GROUP BY seq
),
earlier AS (
    SELECT t.seq, arg_max(t.v, t.number) AS v
    FROM told t JOIN later l ON l.seq = t.seq
    WHERE t.number <= $a
    GROUP BY t.seq
)
SELECT i.item_id, g.group_id, g.name,
       struct_extract_at(e.v, 1), struct_extract_at(e.v, 2), struct_extract_at(e.v, 3), struct_extract_at(e.v, 4),
       struct_extract_at(l.v, 1), struct_extract_at(l.v, 2), struct_extract_at(l.v, 3), struct_extract_at(l.v, 4),
       struct_extract_at(e.v, 5) IS DISTINCT FROM struct_extract_at(l.v, 5) AS other_model,
       struct_extract_at(e.v, 6) IS DISTINCT FROM struct_extract_at(l.v, 6) AS other_policy
FROM later l
LEFT JOIN earlier e ON e.seq = l.seq
JOIN item i ON i.seq = l.seq
JOIN item_group g ON g.group_id = i.group_id
ORDER BY i.seq;
