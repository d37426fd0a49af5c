-- Installations beside those of the configuration; see the same file for Postgres.

CREATE TABLE installations (
    tenant     TEXT      NOT NULL,
    id         TEXT      NOT NULL,
    channel    TEXT      NOT NULL,
    account    TEXT      NOT NULL,
    paused     BOOLEAN   NOT NULL,
    settings   TEXT      NOT NULL,
    policy     TEXT      NOT NULL,
    key_id     TEXT      NOT NULL,
    sealed     BLOB      NOT NULL,
    created_at TIMESTAMP NOT NULL,
    changed_at TIMESTAMP NOT NULL,
    PRIMARY KEY (tenant, id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX installations_id ON installations (id);
CREATE UNIQUE INDEX installations_account ON installations (channel, account);
CREATE INDEX installations_policy ON installations (tenant, id) WHERE policy <> '';
CREATE INDEX installations_key ON installations (key_id) WHERE key_id <> '';

CREATE TABLE installation_changes (
    revision INTEGER PRIMARY KEY,
    id       TEXT    NOT NULL
);

CREATE TABLE quarantine (
    tenant       TEXT      NOT NULL,
    id           TEXT      NOT NULL,
    installation TEXT      NOT NULL,
    until        TIMESTAMP NOT NULL,
    key_id       TEXT      NOT NULL,
    sealed       BLOB      NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX quarantine_installation ON quarantine (tenant, installation, id);
CREATE INDEX quarantine_until ON quarantine (until);

INSERT INTO schema_steps (version) VALUES (4);
