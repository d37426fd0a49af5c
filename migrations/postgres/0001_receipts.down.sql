DROP TABLE schema_steps;
DROP TABLE leases;
DROP TABLE instances;
DROP TABLE history;
DROP TABLE payloads;
DROP TABLE receipts;
