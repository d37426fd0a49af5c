DROP TABLE quarantine;
DROP TABLE installation_changes;
DROP TABLE installations;
DELETE FROM schema_steps WHERE version = 4;
