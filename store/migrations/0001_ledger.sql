-- The ledger, first version.
--
-- Append-only: item, text, score, reply, verdict, summary, segment. Updated: group_state, sweep, counter.
-- No primary keys: they slow inserts and double the file; ingest's anti-joins keep ids unique. Rows lie in
-- the order they came, so that `seq`, `score_seq` and the time-ordered sweep ids prune what is read.

CREATE TABLE counter (
    -- One row. The next numbers to give out, and the last transaction that committed (see ledger_file.py).
    next_item BIGINT NOT NULL,
    next_score BIGINT NOT NULL,
    next_summary BIGINT NOT NULL,
    next_change BIGINT NOT NULL,
    last_commit UUID
);
INSERT INTO counter VALUES (1, 1, 1, 1, NULL);

CREATE TABLE item (
    seq BIGINT NOT NULL,            -- the order of arrival in this ledger, from 1, never given twice
    item_id UUID NOT NULL,
    namespace VARCHAR NOT NULL,
    group_id UUID NOT NULL,
    text_hash UUID NOT NULL,
    chars INTEGER NOT NULL,         -- of the text; here too, so that planning never touches texts
    blank BOOLEAN NOT NULL,         -- nothing but white space: dropped as "empty", never scored
    run_id VARCHAR,
    step VARCHAR,
    kind VARCHAR NOT NULL,
    agent VARCHAR,
    meta JSON,
    flags VARCHAR[],                -- what was noticed on the way in: "nul", "lone_surrogate"
    created_at TIMESTAMPTZ NOT NULL,
    priority INTEGER NOT NULL,
    deadline TIMESTAMPTZ,
    segment_id UUID NOT NULL
);

CREATE TABLE text (
    text_hash UUID NOT NULL,
    text VARCHAR NOT NULL,
    chars INTEGER NOT NULL
);

CREATE TABLE item_group (
    namespace VARCHAR NOT NULL,
    group_id UUID NOT NULL,
    name VARCHAR,                   -- the caller's name for the group, else the run's
    policy VARCHAR NOT NULL,
    query_hash UUID,                -- null: no query was given, the group waits for one
    query VARCHAR,
    query_chars INTEGER
);

CREATE TABLE group_state (
    namespace VARCHAR NOT NULL,
    group_id UUID NOT NULL,
    policy VARCHAR NOT NULL,        -- policy and query_hash as in item_group: due work is picked from here alone
    query_hash UUID,
    items BIGINT NOT NULL,
    chars BIGINT NOT NULL,
    first_seq BIGINT NOT NULL,      -- all its items lie between these two
    last_seq BIGINT NOT NULL,
    judged_seq BIGINT NOT NULL,     -- due when last_seq is beyond it
    judged_sweep UUID,              -- whose verdicts are the current ones
    rejudge_after BIGINT NOT NULL,  -- only scores numbered beyond it count
    summarised_seq BIGINT NOT NULL, -- judged_seq of the judgement that the last finished summary was made from
    summarised_from UUID,           -- and that judgement's sweep: due for a summary where it is not judged_sweep
    summarised_sweep UUID,          -- the sweep that wrote the current summary or extract
    summary_seq BIGINT NOT NULL,    -- the current summary's rows
    change BIGINT NOT NULL,         -- numbers the last change of what readers see; 0 where there is nothing
    due_at TIMESTAMPTZ NOT NULL,    -- last arrival; due once quiet for `settle`
    closed BOOLEAN NOT NULL,        -- or at once, where no more will come
    priority INTEGER NOT NULL,      -- the highest and the earliest among the items not judged yet
    deadline TIMESTAMPTZ
);

CREATE TABLE segment (
    segment_id UUID NOT NULL,
    version INTEGER NOT NULL,
    source VARCHAR,                 -- who wrote it: "record", "import FILE"
    rows BIGINT NOT NULL,           -- items it added
    known BIGINT NOT NULL,          -- items that were there already, word for word
    bad BIGINT NOT NULL,            -- lines quarantined
    overflowed BIGINT NOT NULL,     -- refused at the hook for want of room, as its footer says
    refused BIGINT NOT NULL,        -- refused at the hook for want of sense
    sealed_at TIMESTAMPTZ,
    ingested_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE quarantine (
    quarantine_id UUID NOT NULL,
    segment_id UUID NOT NULL,
    source VARCHAR,
    line BIGINT,
    reason VARCHAR NOT NULL,
    detail VARCHAR,
    raw BLOB NOT NULL,
    quarantined_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE score (
    score_seq BIGINT NOT NULL,      -- increasing: of several good scores for one pair and model the last counts
    sweep_id UUID NOT NULL,
    query_hash UUID NOT NULL,
    text_hash UUID NOT NULL,
    model_key VARCHAR NOT NULL,
    logit FLOAT,                    -- raw; null where scoring failed
    excerpt_start INTEGER NOT NULL, -- character offsets into the text: the chunk that won
    excerpt_end INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    share_read FLOAT NOT NULL,
    flags VARCHAR[],
    error VARCHAR
);

CREATE TABLE reply (
    sweep_id UUID NOT NULL,
    prompt_hash UUID NOT NULL,
    model_key VARCHAR NOT NULL,
    level INTEGER NOT NULL,         -- 0 for a map step, higher on the way up
    text VARCHAR NOT NULL,
    finish_reason VARCHAR NOT NULL, -- only "stop" is a result
    prompt_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    error VARCHAR
);

CREATE TABLE sweep (
    number BIGINT NOT NULL,         -- their order, whatever the clock did
    sweep_id UUID NOT NULL,
    started TIMESTAMPTZ NOT NULL,
    ended TIMESTAMPTZ,
    outcome VARCHAR,                -- null while running, "killed" where it never ended
    config JSON,
    account JSON
);

CREATE TABLE verdict (
    sweep_id UUID NOT NULL,
    group_id UUID NOT NULL,
    seq BIGINT NOT NULL,            -- the item's
    decision VARCHAR NOT NULL,      -- keep, drop, error
    reason VARCHAR NOT NULL,
    rank INTEGER,
    logit FLOAT,
    probability DOUBLE,             -- null unless calibrated
    duplicate_of BIGINT,            -- the representative's seq
    score_seq BIGINT,               -- the score that it rests on
    model_key VARCHAR NOT NULL,
    policy_hash UUID
);

CREATE TABLE summary (
    summary_seq BIGINT NOT NULL,    -- one number for the rows that a group got at once
    sweep_id UUID NOT NULL,
    group_id UUID NOT NULL,
    item_seq BIGINT,                -- null: of the whole group
    judged_seq BIGINT NOT NULL,
    judged_sweep UUID,              -- whose verdicts it was made from
    status VARCHAR NOT NULL,        -- done, skipped, error, extract
    text VARCHAR NOT NULL,
    points JSON NOT NULL,
    output JSON,
    reason VARCHAR NOT NULL,
    model_key VARCHAR,
    finish_reason VARCHAR,
    prompt_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    left_out INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    levels INTEGER NOT NULL,
    written_at TIMESTAMPTZ NOT NULL
);

CREATE TABLE applied (
    commit_id UUID NOT NULL         -- results that waited in the outbox and are in; kept until their file is gone
);

CREATE VIEW current_verdict AS
SELECT s.namespace, v.*
FROM verdict v
JOIN group_state s ON s.judged_sweep = v.sweep_id AND s.group_id = v.group_id;

CREATE VIEW current_summary AS
SELECT s.namespace, y.*, y.judged_sweep IS DISTINCT FROM s.judged_sweep AS stale
FROM summary y
JOIN group_state s ON s.summary_seq = y.summary_seq AND s.group_id = y.group_id;

CREATE VIEW pending_group AS
SELECT g.name, g.query, s.*
FROM group_state s
JOIN item_group g ON g.group_id = s.group_id
WHERE s.last_seq > s.judged_seq;
