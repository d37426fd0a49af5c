-- Messages and the conversations they stand in; see the same file for Postgres.

CREATE TABLE conversations (
    tenant      TEXT      NOT NULL,
    id          TEXT      NOT NULL,
    platform    TEXT      NOT NULL,
    account     TEXT      NOT NULL,
    external_id TEXT      NOT NULL,
    status      TEXT      NOT NULL CHECK (status IN ('pending', 'closed')),
    open_key    TEXT, -- 128 bits of whose conversation it is, while it is pending
    opened_at   TIMESTAMP NOT NULL,
    closed_at   TIMESTAMP,
    closed_by   TEXT      NOT NULL DEFAULT '',
    CHECK ((status = 'pending') = (open_key IS NOT NULL)),
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX conversations_pending ON conversations (open_key, tenant) WHERE open_key IS NOT NULL;
CREATE INDEX conversations_status ON conversations (tenant, status, id);

CREATE TABLE messages (
    tenant          TEXT NOT NULL,
    id              TEXT NOT NULL,
    conversation_id TEXT,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE INDEX messages_conversation ON messages (tenant, conversation_id, id) WHERE conversation_id IS NOT NULL;

INSERT INTO schema_steps (version) VALUES (5);
