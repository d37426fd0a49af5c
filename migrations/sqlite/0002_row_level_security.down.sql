ALTER TABLE leases DROP COLUMN tenant;
DROP TABLE tenants;

DELETE FROM schema_steps WHERE version = 2;
