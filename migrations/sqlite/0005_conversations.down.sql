DROP TABLE messages;
DROP TABLE conversations;
DELETE FROM schema_steps WHERE version = 5;
