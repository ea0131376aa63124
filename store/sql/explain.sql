-- The story of an item or a group.

-- name: item
SELECT i.seq, i.item_id, i.namespace, i.group_id, i.text_hash, i.chars, i.blank, i.run_id, i.step, i.kind,
       i.agent, i.meta::VARCHAR AS meta, i.flags, i.created_at, i.priority, i.deadline, i.segment_id,
       t.text, g.name, g.policy, g.query, g.query_hash, s.judged_seq, s.judged_sweep, s.last_seq, s.items,
       s.due_at, s.closed, k.source, k.sealed_at, k.ingested_at
FROM item i
LEFT JOIN text t ON t.text_hash = i.text_hash
JOIN item_group g ON g.group_id = i.group_id
JOIN group_state s ON s.group_id = i.group_id
LEFT JOIN segment k ON k.segment_id = i.segment_id
WHERE i.item_id = $item::UUID;

-- name: twins
SELECT i.item_id, i.run_id, i.agent, i.step FROM item i
WHERE i.group_id = $group::UUID AND i.text_hash = $text_hash::UUID AND i.seq <> $seq
ORDER BY i.seq LIMIT 20;

-- name: scores
SELECT model_key, logit, excerpt_start, excerpt_end, chunks, tokens, share_read, flags, error, sweep_id
FROM score
WHERE query_hash = $query_hash::UUID AND text_hash = $text_hash::UUID
ORDER BY score_seq DESC;

-- name: verdicts
SELECT v.sweep_id, w.started, v.decision, v.reason, v.rank, v.logit, v.probability, d.item_id AS duplicate_of,
       v.model_key, v.policy_hash, c.excerpt_start, c.excerpt_end
FROM verdict v
LEFT JOIN sweep w ON w.sweep_id = v.sweep_id
LEFT JOIN item d ON d.seq = v.duplicate_of
LEFT JOIN score c ON c.score_seq = v.score_seq
WHERE v.seq = $seq
ORDER BY w.number DESC;

-- name: group
SELECT g.namespace, g.group_id, g.name, g.policy, g.query, s.items, s.chars, s.first_seq, s.last_seq,
       s.judged_seq, s.judged_sweep, s.summarised_sweep, s.due_at, s.closed, s.priority, s.deadline
FROM item_group g
JOIN group_state s ON s.group_id = g.group_id
WHERE g.group_id = $group::UUID;

-- name: sources
SELECT run_id AS run, agent, kind, count(*) AS items FROM item
WHERE group_id = $group::UUID
GROUP BY ALL ORDER BY count(*) DESC, run_id, agent, kind LIMIT 20;

-- name: judgements
SELECT v.sweep_id, w.started, w.outcome, count(*) AS items, count(*) FILTER (v.decision = 'keep') AS kept,
       count(*) FILTER (v.decision = 'drop') AS dropped, count(*) FILTER (v.decision = 'error') AS errors,
       any_value(v.model_key) AS model_key, any_value(v.policy_hash) AS policy_hash
FROM verdict v
LEFT JOIN sweep w ON w.sweep_id = v.sweep_id
WHERE v.group_id = $group::UUID
GROUP BY v.sweep_id, w.started, w.outcome, w.number ORDER BY w.number DESC;

-- name: summaries_of_group
SELECT y.summary_seq = s.summary_seq AS current, y.judged_sweep IS DISTINCT FROM s.judged_sweep AS stale,
       y.status, y.text, y.points::VARCHAR AS points, y.output::VARCHAR AS output, y.reason, y.model_key,
       y.finish_reason, y.left_out, y.calls, y.levels, y.written_at, y.sweep_id, y.judged_sweep,
       i.item_id AS item_id
FROM summary y
JOIN group_state s ON s.group_id = y.group_id
LEFT JOIN item i ON i.seq = y.item_seq
WHERE y.group_id = $group::UUID
ORDER BY y.summary_seq DESC, y.item_seq NULLS FIRST;
