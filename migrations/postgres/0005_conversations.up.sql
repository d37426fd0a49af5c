-- Messages and the conversations they stand in, written with the claims of message.created.

-- Bears the id of the receipt that opened it.
CREATE TABLE conversations (
    tenant      text COLLATE "C" NOT NULL,
    id          uuid        NOT NULL,
    platform    text COLLATE "C" NOT NULL,
    account     text COLLATE "C" NOT NULL,
    external_id text COLLATE "C" NOT NULL,
    status      text COLLATE "C" NOT NULL CHECK (status IN ('pending', 'closed')),
    open_key    uuid, -- 128 bits of whose conversation it is, while it is pending
    opened_at   timestamptz NOT NULL,
    closed_at   timestamptz,
    closed_by   text        NOT NULL DEFAULT '',
    CHECK ((status = 'pending') = (open_key IS NOT NULL)),
    PRIMARY KEY (tenant, id)
);

-- The key alone finds the row, so that no plan goes through all of a tenant's conversations for it.
CREATE UNIQUE INDEX conversations_pending ON conversations (open_key, tenant) WHERE open_key IS NOT NULL;
CREATE INDEX conversations_status ON conversations (tenant, status, id);

-- A message is one with its receipt, which holds its key: the partial unique index
-- receipts_message holds for messages, too. What it says is in the payload, and goes with that.
CREATE TABLE messages (
    tenant          text COLLATE "C" NOT NULL,
    id              uuid NOT NULL, -- of the receipt
    conversation_id uuid,          -- none where the vendor names no conversation
    PRIMARY KEY (tenant, id)
);

CREATE INDEX messages_conversation ON messages (tenant, conversation_id, id) WHERE conversation_id IS NOT NULL;

CREATE POLICY tenant ON conversations
    USING (jsonb_exists((SELECT admitone_tenants()), tenant));
CREATE POLICY tenant ON messages
    USING (jsonb_exists((SELECT admitone_tenants()), tenant));

ALTER TABLE conversations ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE messages ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

INSERT INTO schema_steps (version) VALUES (5);
