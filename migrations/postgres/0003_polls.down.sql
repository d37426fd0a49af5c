DROP TABLE polls;
DELETE FROM schema_steps WHERE version = 3;
