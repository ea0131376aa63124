-- Parquet beside the ledger. A group's rows in the file of the highest version are the current ones.

-- name: change
SELECT next_change - 1 FROM counter;

-- name: merge
WITH newest AS (
    SELECT group_id, max(version) AS version FROM read_parquet($files) GROUP BY group_id
)
SELECT v.*
FROM read_parquet($files) v
JOIN newest n ON n.group_id = v.group_id AND n.version = v.version;

-- name: verdicts
WITH newest AS (
    SELECT group_id, max(version) AS version FROM read_parquet($files) GROUP BY group_id
)
SELECT v.* EXCLUDE (version)
FROM read_parquet($files) v
JOIN newest n ON n.group_id = v.group_id AND n.version = v.version
WHERE ($group_name::VARCHAR IS NULL OR v."group" = $group_name::VARCHAR)
  AND ($group_tail::VARCHAR IS NULL OR ends_with(replace(v.group_id, '-', ''), $group_tail::VARCHAR))
  AND ($item_tail::VARCHAR IS NULL OR ends_with(replace(v.item_id, '-', ''), $item_tail::VARCHAR))
  AND ($namespace::VARCHAR IS NULL OR v.namespace = $namespace::VARCHAR)
  AND ($run::VARCHAR IS NULL OR v.run = $run::VARCHAR)
  AND ($keep::BOOLEAN IS NULL OR (v.decision = 'keep') = $keep::BOOLEAN)
ORDER BY min(v.seq) OVER (PARTITION BY v.group_id), v.rank NULLS LAST, v.seq
LIMIT $limit;

-- name: summaries
WITH newest AS (
    SELECT group_id, max(version) AS version FROM read_parquet($files) GROUP BY group_id
)
SELECT v.* EXCLUDE (version)
FROM read_parquet($files) v
JOIN newest n ON n.group_id = v.group_id AND n.version = v.version
WHERE ($group_name::VARCHAR IS NULL OR v."group" = $group_name::VARCHAR)
  AND ($group_tail::VARCHAR IS NULL OR ends_with(replace(v.group_id, '-', ''), $group_tail::VARCHAR))
  AND ($namespace::VARCHAR IS NULL OR v.namespace = $namespace::VARCHAR)
  AND ($groups::VARCHAR[] IS NULL OR list_contains($groups::VARCHAR[], v.group_id))
  AND ($status::VARCHAR IS NULL OR v.status = $status::VARCHAR)
ORDER BY v.written_at, v.group_id, v.item_id NULLS FIRST
LIMIT $limit;

-- name: groups_of_run
SELECT DISTINCT group_id FROM read_parquet($files) WHERE run = $run;
