-- Receipts and what belongs to them; see the same file for Postgres. Times are integers,
-- microseconds since 1970 in UTC; ids and digests are text.

CREATE TABLE receipts (
    seq            INTEGER   PRIMARY KEY AUTOINCREMENT,
    tenant         TEXT      NOT NULL,
    id             TEXT      NOT NULL,
    platform       TEXT      NOT NULL,
    channel        TEXT      NOT NULL,
    installation   TEXT      NOT NULL,
    account        TEXT      NOT NULL,
    event_id       TEXT      NOT NULL,
    event_digest   TEXT      NOT NULL,
    message_key    TEXT      NOT NULL,
    message_digest TEXT,
    kind           TEXT      NOT NULL,
    conversation   TEXT      NOT NULL,
    digest         TEXT      NOT NULL,
    guarantee      TEXT      NOT NULL,
    state          TEXT      NOT NULL
        CHECK (state IN ('claimed', 'dispatching', 'retrying', 'handled', 'failed', 'lost', 'discarded')),
    attempt        INTEGER   NOT NULL,
    deliveries     INTEGER   NOT NULL,
    vendor_attempt INTEGER   NOT NULL,
    claimed_at     TIMESTAMP NOT NULL,
    begun_at       TIMESTAMP,
    handled_at     TIMESTAMP,
    lease_until    TIMESTAMP,
    holder         TEXT      NOT NULL,
    last_error     TEXT      NOT NULL,
    lane           INTEGER,
    due_at         TIMESTAMP,
    parked         BOOLEAN
);

CREATE UNIQUE INDEX receipts_id ON receipts (tenant, id);
CREATE UNIQUE INDEX receipts_event ON receipts (tenant, event_digest);
CREATE UNIQUE INDEX receipts_message ON receipts (tenant, message_digest) WHERE message_digest IS NOT NULL;
CREATE INDEX receipts_lane ON receipts (tenant, lane, seq) WHERE lane IS NOT NULL;
CREATE INDEX receipts_due ON receipts (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX receipts_parked ON receipts (tenant, id) WHERE parked;

CREATE TABLE payloads (
    tenant     TEXT NOT NULL,
    receipt_id TEXT NOT NULL,
    media_type TEXT NOT NULL,
    body       BLOB NOT NULL,
    PRIMARY KEY (tenant, receipt_id)
) WITHOUT ROWID;

CREATE TABLE history (
    tenant     TEXT      NOT NULL,
    receipt_id TEXT      NOT NULL,
    at         TIMESTAMP NOT NULL,
    what       TEXT      NOT NULL,
    attempt    INTEGER   NOT NULL,
    state      TEXT      NOT NULL,
    reason     TEXT      NOT NULL,
    by_whom    TEXT      NOT NULL
);

CREATE INDEX history_receipt ON history (tenant, receipt_id);

CREATE TABLE instances (
    id          TEXT      PRIMARY KEY,
    alive_until TIMESTAMP NOT NULL
);

CREATE TABLE leases (
    name   TEXT      PRIMARY KEY,
    holder TEXT      NOT NULL,
    until  TIMESTAMP NOT NULL
);

-- Each migration enters itself here in its own transaction: so a migrator that was killed
-- can tell whether the step it was at was applied.
CREATE TABLE schema_steps (
    version INTEGER PRIMARY KEY
);

INSERT INTO schema_steps (version) VALUES (1);
