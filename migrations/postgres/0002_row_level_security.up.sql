-- The database keeps tenants apart by itself: a transaction says for which tenants it speaks,
-- in a setting that ends with it, and sees and changes rows of these alone. It holds for the
-- owner of the tables as well.

-- Names alone, of tenants that have or had rows: what concerns all of them is said one by one.
CREATE TABLE tenants (
    tenant text COLLATE "C" PRIMARY KEY
);

INSERT INTO tenants (tenant)
WITH RECURSIVE t (tenant) AS (
    SELECT min(tenant) FROM receipts
    UNION ALL
    SELECT (SELECT min(x.tenant) FROM receipts x WHERE x.tenant > t.tenant) FROM t WHERE t.tenant IS NOT NULL
)
SELECT tenant FROM t WHERE tenant IS NOT NULL;

INSERT INTO tenants (tenant)
WITH RECURSIVE t (tenant) AS (
    SELECT min(tenant) FROM payloads
    UNION ALL
    SELECT (SELECT min(x.tenant) FROM payloads x WHERE x.tenant > t.tenant) FROM t WHERE t.tenant IS NOT NULL
)
SELECT tenant FROM t WHERE tenant IS NOT NULL
ON CONFLICT DO NOTHING;

-- A lease without a tenant is the deployment's own.
ALTER TABLE leases ADD COLUMN tenant text COLLATE "C" NOT NULL DEFAULT '';

-- The names of the tenants that the transaction speaks for are the names of a JSON object's
-- members, among which one is found in logarithmic time. To have said nothing is an error: no
-- rows at all would look like success.
CREATE FUNCTION admitone_tenants() RETURNS jsonb LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
DECLARE
    spoken text := current_setting('admitone.tenants', true);
BEGIN
    IF spoken IS NULL OR spoken = '' THEN
        RAISE EXCEPTION 'the transaction does not say for which tenants it speaks' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN spoken::jsonb;
END
$$;

-- What is said is read once for a statement: before the first row that somebody could own.
CREATE POLICY tenant ON receipts
    USING (jsonb_exists((SELECT admitone_tenants()), tenant));
CREATE POLICY tenant ON payloads
    USING (jsonb_exists((SELECT admitone_tenants()), tenant));
CREATE POLICY tenant ON history
    USING (jsonb_exists((SELECT admitone_tenants()), tenant));
CREATE POLICY tenant ON leases
    USING (jsonb_exists((SELECT admitone_tenants()), tenant));

ALTER TABLE receipts ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE payloads ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE history ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE leases ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

INSERT INTO schema_steps (version) VALUES (2);
