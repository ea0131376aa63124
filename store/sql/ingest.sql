-- From a batch of records to rows. `incoming` holds items, `accepted` those that are new with their `seq`,
-- `fresh` new texts, `groups` the batch's groups, `closes` control records.

-- name: segments_there
SELECT s.segment_id FROM segment s JOIN wanted w USING (segment_id);

-- name: items_there
SELECT i.item_id, i.text_hash, i.segment_id, i.seq, i.group_id, s.query_hash
FROM (SELECT o.* FROM item o JOIN incoming n ON n.item_id = o.item_id) i
JOIN group_state s ON s.group_id = i.group_id;

-- name: texts_there
SELECT t.text_hash FROM text t JOIN fresh f ON f.text_hash = t.text_hash;

-- name: next_item
SELECT next_item FROM counter;

-- name: take_items
UPDATE counter SET next_item = next_item + $n;

-- name: insert_items
INSERT INTO item (seq, item_id, namespace, group_id, text_hash, chars, blank, run_id, step, kind, agent, meta,
                  flags, created_at, priority, deadline, segment_id)
SELECT seq, item_id, namespace, group_id, text_hash, chars, blank, run_id, step, kind, agent,
       CASE WHEN meta IS NULL OR json_valid(meta) THEN meta::JSON ELSE to_json(meta) END,
       flags, created_at, priority, deadline, segment_id
FROM accepted;

-- name: insert_texts
INSERT INTO text (text_hash, text, chars) SELECT text_hash, text, chars FROM fresh;

-- name: insert_groups
INSERT INTO item_group (namespace, group_id, name, policy, query_hash, query, query_chars)
SELECT g.namespace, g.group_id, g.name, g.policy, g.query_hash, g.query, g.query_chars
FROM groups g
ANTI JOIN item_group k ON k.group_id = g.group_id;

-- name: arrivals
SELECT namespace, group_id, count(*) AS items, sum(chars)::BIGINT AS chars, min(seq) AS first_seq,
       max(seq) AS last_seq, max(arrived) AS arrived, bool_and(settled) AS settled,
       max(priority) AS priority, min(deadline) AS deadline
FROM accepted
GROUP BY namespace, group_id;

-- name: reach_groups
-- What waits for its judgement keeps its claim (priority, deadline); what was judged starts a new one. An
-- import neither delays a group that is still arriving nor opens one that was closed.
UPDATE group_state
SET items = group_state.items + a.items,
    chars = group_state.chars + a.chars,
    first_seq = least(group_state.first_seq, a.first_seq),
    last_seq = a.last_seq,
    due_at = CASE
        WHEN a.settled AND last_seq_before > judged_seq AND NOT closed THEN due_at
        ELSE greatest(due_at, a.arrived)
    END,
    closed = CASE WHEN a.settled THEN closed OR last_seq_before <= judged_seq ELSE false END,
    priority = CASE WHEN last_seq_before > judged_seq THEN greatest(group_state.priority, a.priority)
                    ELSE a.priority END,
    deadline = CASE WHEN last_seq_before > judged_seq THEN least(group_state.deadline, a.deadline)
                    ELSE a.deadline END
FROM (
    SELECT n.*, s.last_seq AS last_seq_before
    FROM arrivals n
    JOIN group_state s ON s.group_id = n.group_id
) a
WHERE group_state.group_id = a.group_id;

-- name: open_groups
INSERT INTO group_state (namespace, group_id, policy, query_hash, items, chars, first_seq, last_seq, judged_seq,
                         judged_sweep, rejudge_after, summarised_seq, summarised_from, summarised_sweep,
                         summary_seq, change, due_at, closed, priority, deadline)
SELECT a.namespace, a.group_id, g.policy, g.query_hash, a.items, a.chars, a.first_seq, a.last_seq, 0,
       NULL, 0, 0, NULL, NULL, 0, 0, a.arrived, a.settled, a.priority, a.deadline
FROM arrivals a
JOIN groups g ON g.group_id = a.group_id
ANTI JOIN group_state s ON s.group_id = a.group_id
ORDER BY a.first_seq;

-- name: close_named
UPDATE group_state SET closed = true
FROM (
    SELECT g.group_id, max(c.before) AS before
    FROM closes c
    JOIN item_group g ON g.name = c."group" AND g.namespace = c.namespace
    GROUP BY g.group_id
) c
WHERE group_state.group_id = c.group_id
  AND group_state.last_seq < c.before;

-- name: close_runs
UPDATE group_state SET closed = true
FROM (
    SELECT i.group_id, max(c.before) AS before
    FROM closes c
    JOIN item i ON i.run_id = c.run AND i.namespace = c.namespace
    GROUP BY i.group_id
) c
WHERE group_state.group_id = c.group_id
  AND group_state.last_seq < c.before;

-- name: rows_of_segments
SELECT i.segment_id, count(*) FROM item i JOIN wanted w USING (segment_id) GROUP BY i.segment_id;

-- name: insert_segments
INSERT INTO segment (segment_id, version, source, rows, known, bad, overflowed, refused, sealed_at, ingested_at)
SELECT segment_id, version, source, rows, known, bad, overflowed, refused, sealed_at, now() FROM ended;

-- name: insert_quarantine
INSERT INTO quarantine (quarantine_id, segment_id, source, line, reason, detail, raw, quarantined_at)
SELECT b.quarantine_id, b.segment_id, b.source, b.line, b.reason, b.detail, b.raw, now()
FROM bad b
ANTI JOIN quarantine q ON q.quarantine_id = b.quarantine_id;

-- name: leave_groups
-- Items that were without a query and came again with one have left these groups.
UPDATE group_state
SET items = coalesce(k.items, 0), chars = coalesce(k.chars, 0), first_seq = coalesce(k.first_seq, group_state.first_seq),
    last_seq = coalesce(k.last_seq, 0), judged_seq = 0
FROM (
    SELECT l.group_id, count(i.seq) AS items, sum(i.chars)::BIGINT AS chars,
           min(i.seq) AS first_seq, max(i.seq) AS last_seq
    FROM (SELECT DISTINCT group_id FROM leaving) l
    LEFT JOIN item i ON i.group_id = l.group_id
    GROUP BY l.group_id
) k
WHERE group_state.group_id = k.group_id;

-- name: remove_leaving
DELETE FROM item WHERE seq IN (SELECT seq FROM leaving);

-- name: remove_empty_states
DELETE FROM group_state WHERE items = 0 AND group_id IN (SELECT group_id FROM leaving);

-- name: remove_empty_groups
DELETE FROM item_group
WHERE group_id IN (SELECT group_id FROM leaving)
  AND group_id NOT IN (SELECT group_id FROM group_state);

-- name: bad_of_segments
SELECT q.segment_id, count(*) FROM quarantine q JOIN wanted w USING (segment_id) GROUP BY q.segment_id;
