-- What somebody asked to forget, and what was made from it.

-- name: choose_items
INSERT INTO chosen_item
SELECT i.seq, i.item_id, i.group_id, i.text_hash
FROM item i
JOIN item_group g ON g.group_id = i.group_id
WHERE ($items::VARCHAR[] IS NULL OR i.seq IN (
          SELECT o.seq FROM item o
          JOIN (SELECT unnest($items::VARCHAR[]) AS tail) t ON ends_with(replace(o.item_id::VARCHAR, '-', ''), t.tail)))
  AND ($group::VARCHAR IS NULL OR g.name = $group::VARCHAR
       OR ends_with(replace(i.group_id::VARCHAR, '-', ''), $group_tail::VARCHAR))
  AND ($run::VARCHAR IS NULL OR i.run_id = $run::VARCHAR)
  AND ($step::VARCHAR IS NULL OR i.step = $step::VARCHAR)
  AND ($kind::VARCHAR IS NULL OR i.kind = $kind::VARCHAR)
  AND ($agent::VARCHAR IS NULL OR i.agent = $agent::VARCHAR)
  AND ($policy::VARCHAR IS NULL OR g.policy = $policy::VARCHAR)
  AND ($namespace::VARCHAR IS NULL OR i.namespace = $namespace::VARCHAR);

-- name: narrow_by_meta
-- A key is a path ("a.b"), or one key with a dot in it.
DELETE FROM chosen_item
WHERE seq NOT IN (
    SELECT seq FROM item
    WHERE meta IS NOT NULL
      AND (json_extract_string(meta, $path::VARCHAR) = $value::VARCHAR
           OR json_extract_string(meta, $key::VARCHAR) = $value::VARCHAR)
);

-- name: add_copies
INSERT INTO chosen_item
SELECT i.seq, i.item_id, i.group_id, i.text_hash
FROM item i
ANTI JOIN chosen_item c ON c.seq = i.seq
WHERE NOT i.blank AND i.text_hash IN (SELECT text_hash FROM chosen_item);

-- name: choose_rest
INSERT INTO gone_item SELECT seq FROM chosen_item;
INSERT INTO gone_group
SELECT DISTINCT group_id FROM chosen_item WHERE group_id NOT IN (SELECT group_id FROM kept_item);
INSERT INTO gone_text
SELECT DISTINCT text_hash FROM chosen_item WHERE text_hash NOT IN (SELECT text_hash FROM kept_item);
INSERT INTO gone_scored FROM gone_text;
INSERT INTO gone_query
SELECT query_hash FROM group_state
WHERE group_id IN (SELECT group_id FROM gone_group) AND query_hash IS NOT NULL
EXCEPT
SELECT query_hash FROM kept_group_state;
-- A summary was made from what the verdicts that it rests on kept.
INSERT INTO gone_summary
SELECT summary_seq FROM summary
WHERE group_id IN (SELECT group_id FROM gone_group)
   OR (judged_sweep IS NULL AND group_id IN (SELECT group_id FROM chosen_item))
   OR item_seq IN (SELECT seq FROM chosen_item)
UNION
SELECT y.summary_seq
FROM summary y
JOIN verdict v ON v.group_id = y.group_id AND v.sweep_id = y.judged_sweep
JOIN chosen_item c ON c.seq = v.seq
WHERE v.decision = 'keep'
UNION
SELECT y.summary_seq
FROM summary y
JOIN chosen_item c ON c.group_id = y.group_id
WHERE contains(y.points::VARCHAR, c.item_id::VARCHAR);
-- Which prompt a reply answered is known by a hash alone, so all go since the first sweep that kept an item.
INSERT INTO gone_reply
SELECT DISTINCT sweep_id FROM reply
WHERE EXISTS (SELECT 1 FROM verdict v JOIN chosen_item c ON c.seq = v.seq WHERE v.decision = 'keep')
  AND sweep_id NOT IN (
      SELECT sweep_id FROM sweep
      WHERE number < (
          SELECT min(w.number) FROM verdict v
          JOIN chosen_item c ON c.seq = v.seq
          JOIN sweep w ON w.sweep_id = v.sweep_id
          WHERE v.decision = 'keep'
      )
  );

-- name: counts
SELECT
    (SELECT count(*) FROM chosen_item),
    (SELECT count(DISTINCT group_id) FROM chosen_item),
    (SELECT count(*) FROM gone_group),
    (SELECT count(*) FROM gone_text),
    (SELECT count(DISTINCT text_hash) FROM chosen_item) - (SELECT count(*) FROM gone_text),
    (SELECT count(*) FROM score) - (SELECT count(*) FROM kept_score),
    (SELECT count(*) FROM verdict) - (SELECT count(*) FROM kept_verdict),
    (SELECT count(*) FROM summary) - (SELECT count(*) FROM kept_summary),
    (SELECT count(*) FROM reply) - (SELECT count(*) FROM kept_reply);

-- name: several
SELECT DISTINCT item_id FROM chosen_item LIMIT 20;

-- name: texts
SELECT t.text FROM text t SEMI JOIN gone_text g ON g.text_hash = t.text_hash;

-- name: drop_quarantined
INSERT INTO gone_quarantine SELECT quarantine_id FROM found;

-- name: reopen
-- In the copy: what is left of the groups is decided anew, from the scores there are, and summarised again.
UPDATE fresh.group_state AS s
SET items = k.items, chars = k.chars, first_seq = k.first_seq, last_seq = k.last_seq, judged_seq = 0,
    summary_seq = CASE WHEN s.summary_seq IN (SELECT summary_seq FROM gone_summary) THEN 0 ELSE s.summary_seq END,
    summarised_from = NULL, summarised_sweep = NULL, summarised_seq = 0,
    change = (SELECT next_change FROM fresh.counter)
FROM (
    SELECT group_id, count(*) AS items, sum(chars)::BIGINT AS chars, min(seq) AS first_seq, max(seq) AS last_seq
    FROM fresh.item
    WHERE group_id IN (SELECT group_id FROM chosen_item)
    GROUP BY group_id
) k
WHERE s.group_id = k.group_id;
UPDATE fresh.counter SET next_change = next_change + 1;
