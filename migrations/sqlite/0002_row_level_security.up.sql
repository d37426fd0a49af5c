-- Names alone, of tenants that have or had rows.
CREATE TABLE tenants (
    tenant TEXT PRIMARY KEY
) WITHOUT ROWID;

INSERT INTO tenants (tenant)
WITH RECURSIVE t (tenant) AS (
    SELECT min(tenant) FROM receipts
    UNION ALL
    SELECT (SELECT min(x.tenant) FROM receipts x WHERE x.tenant > t.tenant) FROM t WHERE t.tenant IS NOT NULL
)
SELECT tenant FROM t WHERE tenant IS NOT NULL;

INSERT OR IGNORE INTO tenants (tenant)
WITH RECURSIVE t (tenant) AS (
    SELECT min(tenant) FROM payloads
    UNION ALL
    SELECT (SELECT min(x.tenant) FROM payloads x WHERE x.tenant > t.tenant) FROM t WHERE t.tenant IS NOT NULL
)
SELECT tenant FROM t WHERE tenant IS NOT NULL;

-- A lease without a tenant is the deployment's own.
ALTER TABLE leases ADD COLUMN tenant TEXT NOT NULL DEFAULT '';

INSERT INTO schema_steps (version) VALUES (2);
