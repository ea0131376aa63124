-- What changes the ledger. `incoming` is the Arrow table at hand.

-- name: start_sweep
INSERT INTO sweep (number, sweep_id, started, config)
SELECT coalesce(max(number), 0) + 1, $sweep::UUID, $started::TIMESTAMPTZ, $config::JSON FROM sweep;

-- name: mark_killed
UPDATE sweep SET outcome = 'killed' WHERE outcome IS NULL AND sweep_id <> $sweep::UUID;

-- name: end_sweep
UPDATE sweep SET ended = $ended, outcome = $outcome, account = $account::JSON WHERE sweep_id = $sweep::UUID;

-- name: take_scores
UPDATE counter SET next_score = $next;

-- name: take_summaries
UPDATE counter SET next_summary = next_summary + $n;

-- name: take_change
UPDATE counter SET next_change = next_change + 1;

-- name: numbers
SELECT next_item, next_score, next_summary FROM counter;

-- name: insert_scores
INSERT INTO score (score_seq, sweep_id, query_hash, text_hash, model_key, logit, excerpt_start, excerpt_end,
                   chunks, tokens, share_read, flags, error)
SELECT $start + ord, $sweep, query_hash, text_hash, $model_key, logit, excerpt_start, excerpt_end,
       chunks, tokens, share_read, flags, error
FROM incoming;

-- name: groups_not_judged_by
-- Of the groups at hand, those that this sweep has not judged yet: writing twice changes nothing.
SELECT count(*)
FROM judged j
JOIN group_state s ON s.group_id = j.group_id
WHERE s.judged_sweep IS DISTINCT FROM $sweep::UUID;

-- name: insert_verdicts
INSERT INTO verdict (sweep_id, group_id, seq, decision, reason, rank, logit, probability, duplicate_of,
                     score_seq, model_key, policy_hash)
SELECT $sweep, j.group_id, v.seq, v.decision, v.reason, v.rank, v.logit, v.probability, v.duplicate_of,
       v.score_seq, $model_key, j.policy_hash
FROM incoming v
JOIN judged j ON j.ord = v.ord
JOIN group_state s ON s.group_id = j.group_id
WHERE s.judged_sweep IS DISTINCT FROM $sweep::UUID
ORDER BY v.ord, v.rank NULLS LAST, v.seq;

-- name: mark_judged
UPDATE group_state
SET judged_seq = j.last_seq, judged_sweep = $sweep::UUID, change = (SELECT next_change FROM counter)
FROM judged j
WHERE group_state.group_id = j.group_id
  AND judged_sweep IS DISTINCT FROM $sweep::UUID;

-- name: insert_replies
INSERT INTO reply (sweep_id, prompt_hash, model_key, level, text, finish_reason, prompt_tokens,
                   cached_tokens, output_tokens, error)
SELECT $sweep, prompt_hash, $model_key, level, text, finish_reason, prompt_tokens, cached_tokens,
       output_tokens, error
FROM incoming;

-- name: insert_summaries
INSERT INTO summary (summary_seq, sweep_id, group_id, item_seq, judged_seq, judged_sweep, status,
                     text, points, output, reason, model_key, finish_reason, prompt_tokens, output_tokens,
                     left_out, calls, levels, written_at)
SELECT $start + d.ord, $sweep, d.group_id, y.item_seq, d.judged_seq, d.judged_sweep, y.status,
       y.text, y.points::JSON, y.output::JSON, y.reason, y.model_key, y.finish_reason, y.prompt_tokens,
       y.output_tokens, y.left_out, y.calls, y.levels, $now
FROM incoming y
JOIN done d ON d.ord = y.ord
ORDER BY y.ord, y.item_seq NULLS FIRST;

-- name: mark_summarised
UPDATE group_state
SET summary_seq = $start + d.ord,
    change = (SELECT next_change FROM counter),
    summarised_sweep = $sweep::UUID,
    summarised_from = CASE WHEN d.extract THEN summarised_from ELSE d.judged_sweep END,
    summarised_seq = CASE WHEN d.extract THEN summarised_seq ELSE d.judged_seq END
FROM done d
WHERE group_state.group_id = d.group_id;

-- name: reopen_rejudge
UPDATE group_state
SET judged_seq = 0, rejudge_after = (SELECT next_score - 1 FROM counter)
WHERE judged_sweep IS NOT NULL AND query_hash IS NOT NULL
  AND (NOT $by_namespace OR namespace = $namespace::VARCHAR)
  AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen));

-- name: reopen_redecide
UPDATE group_state
SET judged_seq = 0
WHERE judged_sweep IS NOT NULL AND query_hash IS NOT NULL
  AND (NOT $by_namespace OR namespace = $namespace::VARCHAR)
  AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen));

-- name: failed_groups
-- Groups whose current verdicts hold an error, and groups whose current summary is one.
SELECT group_id, bool_or(in_verdict) AS in_verdict, bool_or(in_summary) AS in_summary
FROM (
    SELECT namespace, group_id, true AS in_verdict, false AS in_summary
    FROM current_verdict WHERE decision = 'error'
    UNION ALL
    SELECT namespace, group_id, false, true
    FROM current_summary WHERE status = 'error'
)
WHERE (NOT $by_namespace OR namespace = $namespace::VARCHAR)
  AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen))
GROUP BY group_id;

-- name: reopen_failed
UPDATE group_state
SET judged_seq = CASE WHEN f.in_verdict THEN 0 ELSE judged_seq END,
    summarised_from = CASE WHEN f.in_summary THEN NULL ELSE summarised_from END
FROM failed f
WHERE group_state.group_id = f.group_id;
