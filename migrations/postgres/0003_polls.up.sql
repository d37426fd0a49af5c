-- Accounts that are polled: who does it now, how far it has come and how it went.

CREATE TABLE polls (
    tenant       text COLLATE "C" NOT NULL,
    channel      text COLLATE "C" NOT NULL,
    account      text COLLATE "C" NOT NULL,
    holder       text        NOT NULL, -- instance that polls it; empty if none does
    fence        bigint      NOT NULL, -- another at each take
    due_at       timestamptz NOT NULL, -- when it may be taken: while it is held, the end of the lease
    generation   bigint      NOT NULL,
    position     text COLLATE "C" NOT NULL, -- 20 digits, since bigint has no room for every uint64
    state        text        NOT NULL,
    condition    text        NOT NULL,
    failures     integer     NOT NULL,
    last_error   text        NOT NULL,
    entered_at   timestamptz NOT NULL,
    taken_at     timestamptz,
    ended_at     timestamptz,
    caught_up_at timestamptz,
    PRIMARY KEY (tenant, channel, account)
);

CREATE INDEX polls_due ON polls (due_at);

CREATE POLICY tenant ON polls
    USING (jsonb_exists((SELECT admitone_tenants()), tenant));

ALTER TABLE polls ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

INSERT INTO schema_steps (version) VALUES (3);
