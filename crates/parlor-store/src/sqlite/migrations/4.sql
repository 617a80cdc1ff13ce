-- Version 4: batches wait in a journal beside the database.

-- The position in the journal up to which all is in the database, in its one row. The first is the time in nanoseconds:
-- a database that is made anew begins behind all that a journal of the one before can have.
CREATE TABLE journal (
    folded INTEGER NOT NULL
) STRICT;
INSERT INTO journal (folded) VALUES (CAST(unixepoch('now', 'subsec') * 1000000000 AS INTEGER));
