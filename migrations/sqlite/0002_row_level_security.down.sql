DELETE FROM schema_steps WHERE version = 2;
