-- What grows old. A group is old when nothing came for it since $before, and may go when nothing of it waits.

-- name: choose_groups
INSERT INTO gone_group
SELECT group_id FROM group_state
WHERE due_at < $before
  AND query_hash IS NOT NULL
  AND judged_sweep IS NOT NULL
  AND last_seq <= judged_seq
  AND (policy NOT IN (SELECT unnest($summarised::VARCHAR[])) OR summarised_from = judged_sweep);

-- name: held_back
SELECT CASE
           WHEN query_hash IS NULL THEN 'no_query'
           WHEN judged_sweep IS NULL OR last_seq > judged_seq THEN 'not_judged'
           ELSE 'no_summary'
       END AS why,
       count(*)
FROM group_state
WHERE due_at < $before AND group_id NOT IN (SELECT group_id FROM gone_group)
GROUP BY why;

-- name: choose_items
INSERT INTO chosen_item
SELECT seq, item_id, group_id, text_hash FROM item WHERE group_id IN (SELECT group_id FROM gone_group);

-- name: choose_texts
-- Those that no other item has.
INSERT INTO gone_text
SELECT text_hash
FROM text
WHERE text_hash IN (SELECT text_hash FROM chosen_item)
  AND text_hash NOT IN (SELECT i.text_hash FROM item i ANTI JOIN chosen_item c ON c.seq = i.seq);

-- name: only_texts
DELETE FROM gone_group;

-- name: choose_rest
-- With a group all that was made of it; of what stays, what was superseded before $before.
INSERT INTO gone_item SELECT seq FROM chosen_item;
INSERT INTO gone_scored
SELECT DISTINCT text_hash FROM chosen_item WHERE text_hash NOT IN (SELECT text_hash FROM kept_item);
INSERT INTO gone_query
SELECT query_hash FROM group_state WHERE group_id IN (SELECT group_id FROM gone_group)
EXCEPT
SELECT query_hash FROM kept_group_state;

-- name: choose_judgements
INSERT INTO gone_judgement
SELECT DISTINCT v.sweep_id, v.group_id
FROM verdict v
JOIN sweep w ON w.sweep_id = v.sweep_id
JOIN kept_group_state s ON s.group_id = v.group_id
WHERE w.started < $before AND v.sweep_id <> s.judged_sweep AND s.last_seq <= s.judged_seq;

-- name: choose_summaries
INSERT INTO gone_summary
SELECT summary_seq FROM summary WHERE group_id IN (SELECT group_id FROM gone_group)
UNION
SELECT y.summary_seq
FROM summary y
JOIN kept_group_state s ON s.group_id = y.group_id
WHERE y.written_at < $before AND y.summary_seq <> s.summary_seq AND s.last_seq <= s.judged_seq;

-- name: choose_replies
-- A sweep that carries on after a kill reads the replies of the one before it; nothing reads old ones.
INSERT INTO gone_reply SELECT sweep_id FROM sweep WHERE started < $before;

-- name: choose_sweeps
INSERT INTO gone_sweep
SELECT sweep_id FROM sweep
WHERE started < $before
  AND number NOT IN (
      SELECT max(number) FROM sweep
      UNION ALL
      SELECT coalesce(max(number), 0) FROM sweep WHERE outcome IN ('done', 'nothing_due', 'stopped')
  )
  AND sweep_id NOT IN (
      SELECT sweep_id FROM kept_verdict
      UNION SELECT sweep_id FROM kept_summary
      UNION SELECT sweep_id FROM kept_score
      UNION SELECT judged_sweep FROM kept_group_state WHERE judged_sweep IS NOT NULL
      UNION SELECT summarised_from FROM kept_group_state WHERE summarised_from IS NOT NULL
      UNION SELECT summarised_sweep FROM kept_group_state WHERE summarised_sweep IS NOT NULL
  );

-- name: counts
SELECT
    (SELECT count(DISTINCT group_id) FROM chosen_item
     WHERE $whole OR text_hash IN (SELECT text_hash FROM gone_text)),
    (SELECT count(*) FROM chosen_item WHERE $whole OR text_hash IN (SELECT text_hash FROM gone_text)),
    (SELECT count(*) FROM gone_text),
    (SELECT coalesce(sum(strlen(text)), 0)::BIGINT FROM text SEMI JOIN gone_text USING (text_hash)),
    (SELECT count(*) FROM score) - (SELECT count(*) FROM kept_score),
    (SELECT count(*) FROM verdict) - (SELECT count(*) FROM kept_verdict),
    (SELECT count(*) FROM summary) - (SELECT count(*) FROM kept_summary),
    (SELECT count(*) FROM reply) - (SELECT count(*) FROM kept_reply),
    (SELECT count(*) FROM gone_sweep);

-- name: by_month
-- A text that groups of several months share counts in the last of them.
WITH mine AS (
    SELECT c.seq, c.group_id, c.text_hash, strftime(s.due_at, '%Y-%m') AS month
    FROM chosen_item c
    JOIN group_state s ON s.group_id = c.group_id
    WHERE $whole OR c.text_hash IN (SELECT text_hash FROM gone_text)
),
size AS (
    SELECT m.month, count(*) AS texts, sum(strlen(t.text))::BIGINT AS bytes
    FROM (SELECT text_hash, max(month) AS month FROM mine GROUP BY text_hash) m
    JOIN gone_text g ON g.text_hash = m.text_hash
    JOIN text t ON t.text_hash = m.text_hash
    GROUP BY m.month
)
SELECT m.month, count(DISTINCT m.group_id), count(*), coalesce(any_value(z.texts), 0),
       coalesce(any_value(z.bytes), 0)
FROM mine m
LEFT JOIN size z ON z.month = m.month
GROUP BY m.month
ORDER BY m.month;
