-- Accounts that are polled; see the same file for Postgres.

CREATE TABLE polls (
    tenant       TEXT      NOT NULL,
    channel      TEXT      NOT NULL,
    account      TEXT      NOT NULL,
    holder       TEXT      NOT NULL,
    fence        INTEGER   NOT NULL,
    due_at       TIMESTAMP NOT NULL,
    generation   INTEGER   NOT NULL,
    position     TEXT      NOT NULL,
    state        TEXT      NOT NULL,
    condition    TEXT      NOT NULL,
    failures     INTEGER   NOT NULL,
    last_error   TEXT      NOT NULL,
    entered_at   TIMESTAMP NOT NULL,
    taken_at     TIMESTAMP,
    ended_at     TIMESTAMP,
    caught_up_at TIMESTAMP,
    PRIMARY KEY (tenant, channel, account)
) WITHOUT ROWID;

CREATE INDEX polls_due ON polls (due_at);

INSERT INTO schema_steps (version) VALUES (3);
