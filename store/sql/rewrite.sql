-- The ledger written anew. What has to go stands in the gone_* tables, which are temporary and empty at first;
-- the kept_* views are what stays. `fresh` is the copy. Every table of the ledger has a line in each statement.

-- name: nothing_gone
CREATE OR REPLACE TEMP TABLE chosen_item (seq BIGINT, item_id UUID, group_id UUID, text_hash UUID);
CREATE OR REPLACE TEMP TABLE gone_item (seq BIGINT);
CREATE OR REPLACE TEMP TABLE gone_group (group_id UUID);
CREATE OR REPLACE TEMP TABLE gone_text (text_hash UUID);
CREATE OR REPLACE TEMP TABLE gone_scored (text_hash UUID);
CREATE OR REPLACE TEMP TABLE gone_query (query_hash UUID);
CREATE OR REPLACE TEMP TABLE gone_judgement (sweep_id UUID, group_id UUID);
CREATE OR REPLACE TEMP TABLE gone_summary (summary_seq BIGINT);
CREATE OR REPLACE TEMP TABLE gone_reply (sweep_id UUID);
CREATE OR REPLACE TEMP TABLE gone_sweep (sweep_id UUID);
CREATE OR REPLACE TEMP TABLE gone_quarantine (quarantine_id UUID);
CREATE OR REPLACE TEMP VIEW kept_applied AS FROM applied;
CREATE OR REPLACE TEMP VIEW kept_counter AS FROM counter;
CREATE OR REPLACE TEMP VIEW kept_group_state AS
    FROM group_state WHERE group_id NOT IN (SELECT group_id FROM gone_group);
CREATE OR REPLACE TEMP VIEW kept_item AS FROM item WHERE seq NOT IN (SELECT seq FROM gone_item);
CREATE OR REPLACE TEMP VIEW kept_item_group AS
    FROM item_group WHERE group_id NOT IN (SELECT group_id FROM gone_group);
CREATE OR REPLACE TEMP VIEW kept_quarantine AS
    FROM quarantine WHERE quarantine_id NOT IN (SELECT quarantine_id FROM gone_quarantine);
CREATE OR REPLACE TEMP VIEW kept_reply AS FROM reply WHERE sweep_id NOT IN (SELECT sweep_id FROM gone_reply);
CREATE OR REPLACE TEMP VIEW kept_schema_version AS FROM schema_version;
CREATE OR REPLACE TEMP VIEW kept_score AS
    FROM score
    WHERE text_hash NOT IN (SELECT text_hash FROM gone_scored)
      AND query_hash NOT IN (SELECT query_hash FROM gone_query);
CREATE OR REPLACE TEMP VIEW kept_segment AS FROM segment;
CREATE OR REPLACE TEMP VIEW kept_summary AS
    FROM summary WHERE summary_seq NOT IN (SELECT summary_seq FROM gone_summary);
CREATE OR REPLACE TEMP VIEW kept_sweep AS FROM sweep WHERE sweep_id NOT IN (SELECT sweep_id FROM gone_sweep);
CREATE OR REPLACE TEMP VIEW kept_text AS FROM text WHERE text_hash NOT IN (SELECT text_hash FROM gone_text);
-- What followed the verdict of an item that goes stands alone until its group is decided again.
CREATE OR REPLACE TEMP VIEW kept_verdict AS
    SELECT * REPLACE (CASE WHEN duplicate_of NOT IN (SELECT seq FROM gone_item) THEN duplicate_of END AS duplicate_of)
    FROM verdict
    WHERE seq NOT IN (SELECT seq FROM gone_item)
      AND (sweep_id, group_id) NOT IN (SELECT (sweep_id, group_id) FROM gone_judgement);

-- name: tables_of_fresh
SELECT table_name FROM duckdb_tables() WHERE database_name = 'fresh';

-- name: copy
DELETE FROM fresh.counter;
DELETE FROM fresh.schema_version;
INSERT INTO fresh.applied BY NAME FROM kept_applied;
INSERT INTO fresh.counter BY NAME FROM kept_counter;
INSERT INTO fresh.group_state BY NAME FROM kept_group_state;
INSERT INTO fresh.item BY NAME FROM kept_item;
INSERT INTO fresh.item_group BY NAME FROM kept_item_group;
INSERT INTO fresh.quarantine BY NAME FROM kept_quarantine;
INSERT INTO fresh.reply BY NAME FROM kept_reply;
INSERT INTO fresh.schema_version BY NAME FROM kept_schema_version;
INSERT INTO fresh.score BY NAME FROM kept_score;
INSERT INTO fresh.segment BY NAME FROM kept_segment;
INSERT INTO fresh.summary BY NAME FROM kept_summary;
INSERT INTO fresh.sweep BY NAME FROM kept_sweep;
INSERT INTO fresh.text BY NAME FROM kept_text;
INSERT INTO fresh.verdict BY NAME FROM kept_verdict;

-- name: expected
-- Rows, and a checksum of them that does not depend on their order.
SELECT 'applied', count(*), bit_xor(hash(t)) FROM kept_applied t
UNION ALL SELECT 'counter', count(*), bit_xor(hash(t)) FROM kept_counter t
UNION ALL SELECT 'group_state', count(*), bit_xor(hash(t)) FROM kept_group_state t
UNION ALL SELECT 'item', count(*), bit_xor(hash(t)) FROM kept_item t
UNION ALL SELECT 'item_group', count(*), bit_xor(hash(t)) FROM kept_item_group t
UNION ALL SELECT 'quarantine', count(*), bit_xor(hash(t)) FROM kept_quarantine t
UNION ALL SELECT 'reply', count(*), bit_xor(hash(t)) FROM kept_reply t
UNION ALL SELECT 'schema_version', count(*), bit_xor(hash(t)) FROM kept_schema_version t
UNION ALL SELECT 'score', count(*), bit_xor(hash(t)) FROM kept_score t
UNION ALL SELECT 'segment', count(*), bit_xor(hash(t)) FROM kept_segment t
UNION ALL SELECT 'summary', count(*), bit_xor(hash(t)) FROM kept_summary t
UNION ALL SELECT 'sweep', count(*), bit_xor(hash(t)) FROM kept_sweep t
UNION ALL SELECT 'text', count(*), bit_xor(hash(t)) FROM kept_text t
UNION ALL SELECT 'verdict', count(*), bit_xor(hash(t)) FROM kept_verdict t;

-- name: copied
SELECT 'applied', count(*), bit_xor(hash(t)) FROM fresh.applied t
UNION ALL SELECT 'counter', count(*), bit_xor(hash(t)) FROM fresh.counter t
UNION ALL SELECT 'group_state', count(*), bit_xor(hash(t)) FROM fresh.group_state t
UNION ALL SELECT 'item', count(*), bit_xor(hash(t)) FROM fresh.item t
UNION ALL SELECT 'item_group', count(*), bit_xor(hash(t)) FROM fresh.item_group t
UNION ALL SELECT 'quarantine', count(*), bit_xor(hash(t)) FROM fresh.quarantine t
UNION ALL SELECT 'reply', count(*), bit_xor(hash(t)) FROM fresh.reply t
UNION ALL SELECT 'schema_version', count(*), bit_xor(hash(t)) FROM fresh.schema_version t
UNION ALL SELECT 'score', count(*), bit_xor(hash(t)) FROM fresh.score t
UNION ALL SELECT 'segment', count(*), bit_xor(hash(t)) FROM fresh.segment t
UNION ALL SELECT 'summary', count(*), bit_xor(hash(t)) FROM fresh.summary t
UNION ALL SELECT 'sweep', count(*), bit_xor(hash(t)) FROM fresh.sweep t
UNION ALL SELECT 'text', count(*), bit_xor(hash(t)) FROM fresh.text t
UNION ALL SELECT 'verdict', count(*), bit_xor(hash(t)) FROM fresh.verdict t;

-- name: bytes_in_use
-- And what a row group of texts may take before it is compressed.
SELECT d.used_blocks * d.block_size + coalesce(t.waiting, 0)::BIGINT
FROM pragma_database_size() d,
     (SELECT least(count(*), 122880) * avg(chars) AS waiting FROM text) t
WHERE d.database_name = current_database();
