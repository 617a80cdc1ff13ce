-- Version 5: sessions of subagents, which their owners' sessions are deleted with and lists leave out.

ALTER TABLE sessions ADD COLUMN owner TEXT;
CREATE INDEX sessions_owner ON sessions (owner) WHERE owner IS NOT NULL;
