-- Installations beside those of the configuration. Ids and accounts are unique over all tenants:
-- an event's account must lead to one tenant.

CREATE TABLE installations (
    tenant     text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    channel    text COLLATE "C" NOT NULL,
    account    text COLLATE "C" NOT NULL,
    paused     boolean     NOT NULL,
    settings   text        NOT NULL, -- JSON, as it was given
    policy     text        NOT NULL, -- JSON; '' if it has none of its own
    key_id     text        NOT NULL, -- of the key that sealed; '' if nothing is sealed
    sealed     bytea       NOT NULL, -- secrets and dispatch address
    created_at timestamptz NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE UNIQUE INDEX installations_id ON installations (id);
CREATE UNIQUE INDEX installations_account ON installations (channel, account);
CREATE INDEX installations_policy ON installations (tenant, id) WHERE policy <> '';
CREATE INDEX installations_key ON installations (key_id) WHERE key_id <> '';

-- What instances read to learn which installations they must look up again. The last changes
-- are kept; who has missed older ones looks up all.
CREATE TABLE installation_changes (
    revision bigint PRIMARY KEY,
    id       text   NOT NULL
);

-- Requests whose signature failed, sealed, for as long as their installation's policy says.
CREATE TABLE quarantine (
    tenant       text COLLATE "C" NOT NULL,
    id           uuid        NOT NULL, -- UUIDv7: the order of ids is that of time
    installation text COLLATE "C" NOT NULL,
    until        timestamptz NOT NULL,
    key_id       text        NOT NULL,
    sealed       bytea       NOT NULL,
    PRIMARY KEY (tenant, id)
);

CREATE INDEX quarantine_installation ON quarantine (tenant, installation, id);
CREATE INDEX quarantine_until ON quarantine (until);

CREATE POLICY tenant ON quarantine
    USING (jsonb_exists((SELECT admitone_tenants()), tenant));
CREATE POLICY tenant ON installations
    USING (jsonb_exists((SELECT admitone_tenants()), tenant));

-- Whose an event is must be looked up before its tenant is known. A transaction that names one
-- installation, by its id or by its channel and account, reads that one and can do nothing else
-- with it.
CREATE POLICY look_up ON installations FOR SELECT
    USING (id = current_setting('admitone.installation', true)
        OR channel || '/' || account = current_setting('admitone.account', true));

ALTER TABLE quarantine ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE installations ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

INSERT INTO schema_steps (version) VALUES (4);
