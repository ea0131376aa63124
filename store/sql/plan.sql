-- What is due, and what a sweep reads to work on it. Narrow columns first; texts are joined last.
-- `picked` is the page of groups at hand: (ord, group_id, query_hash, query_chars, last_seq). All its items, and
-- so the first of each of its groups, lie between $first and $last: the rest of the tables is skipped unread.
-- `chosen` is what a selection names, and counts only where $by_choice is true; `without` likewise.

-- name: no_keys
SELECT NULL::VARCHAR AS namespace, NULL::UUID AS group_id WHERE false;

-- name: due_groups
WITH page AS (
    SELECT *
    FROM group_state
    WHERE last_seq > judged_seq
      AND query_hash IS NOT NULL
      AND policy IN (SELECT unnest($policies::VARCHAR[]))
      AND judged_sweep IS DISTINCT FROM $sweep::UUID
      AND ($quiet_since::TIMESTAMPTZ IS NULL OR closed OR due_at <= $quiet_since::TIMESTAMPTZ)
      AND (NOT $by_namespace OR namespace = $namespace::VARCHAR)
      AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen))
      AND (NOT $by_absence OR group_id NOT IN (SELECT group_id FROM without))
    ORDER BY priority DESC, deadline ASC NULLS LAST, due_at, first_seq
    LIMIT $limit
)
SELECT p.namespace, p.group_id, g.name, g.query, p.query_hash, p.policy, p.items, p.chars,
       p.last_seq, p.judged_seq, p.judged_sweep, p.priority, p.deadline, p.first_seq
FROM page p
JOIN item_group g ON g.group_id = p.group_id
ORDER BY p.priority DESC, p.deadline ASC NULLS LAST, p.due_at, p.first_seq;

-- name: due_summaries
WITH page AS (
    SELECT *
    FROM group_state
    WHERE judged_sweep IS NOT NULL
      AND summarised_from IS DISTINCT FROM judged_sweep
      AND summarised_sweep IS DISTINCT FROM $sweep::UUID
      AND query_hash IS NOT NULL
      AND policy IN (SELECT unnest($policies::VARCHAR[]))
      AND (NOT $by_namespace OR namespace = $namespace::VARCHAR)
      AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen))
      AND (NOT $by_absence OR group_id NOT IN (SELECT group_id FROM without))
    ORDER BY priority DESC, deadline ASC NULLS LAST, due_at, first_seq
    LIMIT $limit
)
SELECT p.namespace, p.group_id, g.name, g.query, p.query_hash, p.policy, p.items, p.chars,
       p.last_seq, p.judged_seq, p.judged_sweep, p.priority, p.deadline, p.first_seq
FROM page p
JOIN item_group g ON g.group_id = p.group_id
ORDER BY p.priority DESC, p.deadline ASC NULLS LAST, p.due_at, p.first_seq;

-- name: count_due_summaries
SELECT count(*)
FROM group_state
WHERE judged_sweep IS NOT NULL
  AND summarised_from IS DISTINCT FROM judged_sweep
  AND summarised_sweep IS DISTINCT FROM $sweep::UUID
  AND query_hash IS NOT NULL
  AND policy IN (SELECT unnest($policies::VARCHAR[]))
  AND (NOT $by_namespace OR namespace = $namespace::VARCHAR)
  AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen));

-- name: waiting
SELECT
    CASE
        WHEN last_seq <= judged_seq THEN 'nothing_new'
        WHEN query_hash IS NULL THEN 'no_query'
        WHEN policy NOT IN (SELECT unnest($policies::VARCHAR[])) THEN 'unknown_policy'
        WHEN $quiet_since::TIMESTAMPTZ IS NULL OR closed OR due_at <= $quiet_since::TIMESTAMPTZ THEN 'due'
        ELSE 'unsettled'
    END AS why,
    count(*) AS groups
FROM group_state
WHERE (NOT $by_namespace OR namespace = $namespace::VARCHAR)
  AND (NOT $by_choice OR group_id IN (SELECT group_id FROM chosen))
GROUP BY why;

-- name: pairs_to_score
WITH mine AS (
    SELECT p.ord, p.query_hash, p.query_chars, i.text_hash, i.chars, i.blank, i.seq, s.rejudge_after
    FROM picked p
    JOIN item i ON i.group_id = p.group_id AND i.seq <= p.last_seq
    JOIN group_state s ON s.group_id = p.group_id
    WHERE i.seq BETWEEN $first AND $last AND s.first_seq BETWEEN $first AND $last
),
pair AS (
    SELECT query_hash, text_hash, blank, min((ord, seq)) AS place, any_value(query_chars) AS query_chars,
           any_value(chars) AS chars, max(rejudge_after) AS rejudge_after, count(*) AS items
    FROM mine
    GROUP BY query_hash, text_hash, blank
),
good AS (
    SELECT c.query_hash, c.text_hash, max(c.score_seq) AS score_seq
    FROM score c
    JOIN pair USING (query_hash, text_hash)
    WHERE c.model_key = $model_key AND c.error IS NULL
    GROUP BY c.query_hash, c.text_hash
)
SELECT p.query_hash, p.text_hash, p.query_chars, p.chars, p.blank, p.items,
       coalesce(g.score_seq > p.rejudge_after, false) AS cached
FROM pair p
LEFT JOIN good g USING (query_hash, text_hash)
ORDER BY p.place;

-- name: texts
SELECT t.text_hash, t.text
FROM text t
WHERE t.text_hash IN (SELECT text_hash FROM wanted);

-- name: scores
SELECT c.query_hash, c.text_hash, c.logit, c.excerpt_start, c.excerpt_end, c.chunks, c.tokens,
       c.share_read, c.flags, c.error
FROM score c
JOIN wanted w USING (query_hash, text_hash)
WHERE c.model_key = $model_key AND ($errors OR c.error IS NULL)
QUALIFY row_number() OVER (
    PARTITION BY c.query_hash, c.text_hash ORDER BY (c.error IS NULL) DESC, c.score_seq DESC
) = 1;

-- name: candidates
WITH mine AS (
    SELECT p.ord, p.group_id, p.query_hash, i.seq, i.text_hash, i.chars, i.blank, s.rejudge_after
    FROM picked p
    JOIN item i ON i.group_id = p.group_id AND i.seq <= p.last_seq
    JOIN group_state s ON s.group_id = p.group_id
    WHERE i.seq BETWEEN $first AND $last AND s.first_seq BETWEEN $first AND $last
),
pair AS (
    SELECT query_hash, text_hash, rejudge_after FROM mine WHERE NOT blank GROUP BY ALL
),
latest AS (
    SELECT c.query_hash, c.text_hash, p.rejudge_after,
           arg_max(c.logit, c.score_seq) FILTER (c.error IS NULL) AS logit,
           max(c.score_seq) FILTER (c.error IS NULL) AS score_seq,
           arg_max(c.error, c.score_seq) FILTER (c.error IS NOT NULL) AS error
    FROM score c
    JOIN pair p ON p.query_hash = c.query_hash AND p.text_hash = c.text_hash AND c.score_seq > p.rejudge_after
    WHERE c.model_key = $model_key
    GROUP BY ALL
)
SELECT m.group_id, m.seq, m.text_hash, m.chars, m.blank, l.logit,
       CASE WHEN l.logit IS NULL THEN l.error END AS error, l.score_seq
FROM mine m
LEFT JOIN latest l ON NOT m.blank AND l.query_hash = m.query_hash AND l.text_hash = m.text_hash
                  AND l.rejudge_after = m.rejudge_after
ORDER BY m.ord, m.seq;

-- name: kept
WITH mine AS (
    SELECT p.ord, v.group_id, v.seq, v.rank, v.logit, v.score_seq
    FROM picked p
    JOIN group_state s ON s.group_id = p.group_id
    JOIN verdict v ON v.sweep_id = s.judged_sweep AND v.group_id = p.group_id
    WHERE v.decision = 'keep' AND v.duplicate_of IS NULL AND v.seq BETWEEN $first AND $last
      AND s.first_seq BETWEEN $first AND $last
)
SELECT m.group_id, m.seq, i.item_id, i.text_hash, t.text, m.rank, m.logit,
       coalesce(c.excerpt_start, 0) AS excerpt_start, coalesce(c.excerpt_end, i.chars) AS excerpt_end,
       i.kind, i.agent, i.step
FROM mine m
JOIN item i ON i.seq = m.seq
JOIN text t ON t.text_hash = i.text_hash
LEFT JOIN score c ON c.score_seq = m.score_seq
ORDER BY m.ord, m.rank NULLS LAST, m.seq;

-- name: replies
SELECT r.prompt_hash, r.text, r.finish_reason, r.prompt_tokens, r.cached_tokens, r.output_tokens
FROM reply r
JOIN wanted w USING (prompt_hash)
WHERE r.model_key = $model_key AND r.finish_reason = 'stop' AND r.error IS NULL;

-- name: groups_of_run
SELECT DISTINCT namespace, group_id FROM item WHERE run_id = $run;

-- name: groups_of_name
SELECT namespace, group_id FROM item_group WHERE name = $name;

-- name: groups_of_tail
SELECT namespace, group_id FROM item_group WHERE ends_with(replace(group_id::VARCHAR, '-', ''), $tail);
