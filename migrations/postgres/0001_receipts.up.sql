-- Receipts and what belongs to them. Every key holds the tenant, so that the tables
-- can be partitioned or distributed by tenant without a change of what is unique.

CREATE TABLE receipts (
    tenant           text COLLATE "C" NOT NULL,
    id               uuid        NOT NULL, -- UUIDv7: the order of ids is that of time
    seq              bigint      GENERATED ALWAYS AS IDENTITY, -- order of claims
    platform         text        NOT NULL,
    channel          text        NOT NULL,
    installation     text        NOT NULL,
    account          text        NOT NULL,
    event_id         text        NOT NULL,
    event_digest     uuid        NOT NULL, -- 128 bits of the event key; what is unique
    message_key      text        NOT NULL,
    message_digest   uuid,                 -- 128 bits of the message key, where there is one
    kind             text        NOT NULL,
    conversation     text        NOT NULL,
    digest           uuid        NOT NULL, -- 128 bits of the content
    guarantee        text        NOT NULL,
    state            text        NOT NULL
        CHECK (state IN ('claimed', 'dispatching', 'retrying', 'handled', 'failed', 'lost', 'discarded')),
    attempt          integer     NOT NULL,
    deliveries       integer     NOT NULL,
    vendor_attempt   integer     NOT NULL,
    claimed_at       timestamptz NOT NULL,
    begun_at         timestamptz,
    handled_at       timestamptz,
    lease_until      timestamptz,
    holder           text        NOT NULL,
    last_error       text        NOT NULL,
    -- The next three columns carry the partial indexes. They stand apart from state, so that
    -- a begin changes no indexed column and stays within its page.
    lane             bigint,      -- place in its conversation, until the first attempt has ended
    due_at           timestamptz, -- when a receipt that is open without a lane is taken up
    parked           boolean,     -- true while it is closed without having been handled
    PRIMARY KEY (tenant, id)
) WITH (fillfactor = 50); -- a receipt is written three times: room for each within its page

-- The digests, of which the tenant is a part, come first: so an index finds what it is named for or
-- is of no use, and no plan that was made while a table was small goes through a tenant's receipts.
CREATE UNIQUE INDEX receipts_event ON receipts (event_digest, tenant);
CREATE UNIQUE INDEX receipts_message ON receipts (message_digest, tenant) WHERE message_digest IS NOT NULL;
CREATE INDEX receipts_lane ON receipts (tenant, lane, seq) WHERE lane IS NOT NULL;
CREATE INDEX receipts_due ON receipts (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX receipts_parked ON receipts (tenant, id) WHERE parked;
CREATE INDEX receipts_time ON receipts USING brin (claimed_at) WITH (pages_per_range = 32);

CREATE TABLE payloads (
    tenant     text COLLATE "C" NOT NULL,
    receipt_id uuid  NOT NULL,
    media_type text  NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (tenant, receipt_id)
);

CREATE TABLE history (
    tenant     text COLLATE "C" NOT NULL,
    receipt_id uuid        NOT NULL,
    at         timestamptz NOT NULL,
    what       text        NOT NULL,
    attempt    integer     NOT NULL,
    state      text        NOT NULL,
    reason     text        NOT NULL,
    by_whom    text        NOT NULL
);

CREATE INDEX history_receipt ON history (tenant, receipt_id);

CREATE TABLE instances (
    id          text        PRIMARY KEY,
    alive_until timestamptz NOT NULL
);

CREATE TABLE leases (
    name   text        PRIMARY KEY,
    holder text        NOT NULL,
    until  timestamptz NOT NULL
);

-- Each migration enters itself here in its own transaction: so a migrator that was killed
-- can tell whether the step it was at was applied.
CREATE TABLE schema_steps (
    version bigint PRIMARY KEY
);

INSERT INTO schema_steps (version) VALUES (1);
