-- Keeps the place of row-level security.
INSERT INTO schema_steps (version) VALUES (2);
