-- A ledger that can only be read, with what waits in the outbox laid over it.
-- `base` is the ledger; `delta` holds what commits wrote; the views of `main` show both.

-- name: tables
CREATE SCHEMA IF NOT EXISTS delta;
CREATE OR REPLACE TABLE delta.score AS FROM base.score LIMIT 0;
CREATE OR REPLACE TABLE delta.reply AS FROM base.reply LIMIT 0;
CREATE OR REPLACE TABLE delta.verdict AS FROM base.verdict LIMIT 0;
CREATE OR REPLACE TABLE delta.summary AS FROM base.summary LIMIT 0;
CREATE OR REPLACE TABLE delta.sweep AS FROM base.sweep LIMIT 0;
CREATE OR REPLACE TABLE delta.group_state AS FROM base.group_state LIMIT 0;
CREATE OR REPLACE TABLE delta.counter AS FROM base.counter;
CREATE OR REPLACE VIEW main.item AS FROM base.item;
CREATE OR REPLACE VIEW main.text AS FROM base.text;
CREATE OR REPLACE VIEW main.item_group AS FROM base.item_group;
CREATE OR REPLACE VIEW main.segment AS FROM base.segment;
CREATE OR REPLACE VIEW main.quarantine AS FROM base.quarantine;
CREATE OR REPLACE VIEW main.counter AS FROM delta.counter;
CREATE OR REPLACE VIEW main.score AS FROM base.score UNION ALL FROM delta.score;
CREATE OR REPLACE VIEW main.reply AS FROM base.reply UNION ALL FROM delta.reply;
CREATE OR REPLACE VIEW main.verdict AS FROM base.verdict UNION ALL FROM delta.verdict;
CREATE OR REPLACE VIEW main.summary AS FROM base.summary UNION ALL FROM delta.summary;
CREATE OR REPLACE VIEW main.sweep AS
    SELECT * FROM base.sweep WHERE sweep_id NOT IN (SELECT sweep_id FROM delta.sweep)
    UNION ALL FROM delta.sweep;
CREATE OR REPLACE VIEW main.group_state AS
    SELECT s.* FROM base.group_state s ANTI JOIN delta.group_state d ON d.group_id = s.group_id
    UNION ALL FROM delta.group_state;

-- name: views_of_base
SELECT sql FROM duckdb_views() WHERE database_name = 'base' AND NOT internal ORDER BY view_oid;

-- name: copy_groups
-- What a commit updates is copied first; `touched` names its groups.
INSERT INTO delta.group_state
SELECT s.* FROM base.group_state s
JOIN touched t ON t.group_id = s.group_id
ANTI JOIN delta.group_state d ON d.group_id = s.group_id;

-- name: copy_sweeps
INSERT INTO delta.sweep
SELECT s.* FROM base.sweep s ANTI JOIN delta.sweep d ON d.sweep_id = s.sweep_id WHERE s.outcome IS NULL;

-- name: applied
SELECT commit_id FROM applied;

-- name: note_applied
INSERT INTO applied VALUES ($commit);

-- name: forget_applied
DELETE FROM applied WHERE commit_id NOT IN (SELECT commit_id FROM waiting);
