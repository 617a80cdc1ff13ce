-- Version 1. Released texts are never edited: a change of the format is one more file.

-- `rank` is the bitwise complement of the last activity. It grows as activity gets older, so that the latest come
-- first in an ascending index and one comparison of (rank, id) finds where a page begins.
CREATE TABLE sessions (
    key INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    agent_session TEXT,
    cwd TEXT NOT NULL,
    title TEXT,
    parent TEXT,
    created_at INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    archived INTEGER NOT NULL,
    busy INTEGER NOT NULL,
    data TEXT NOT NULL
) STRICT;

-- Every list is read in order from one of these. All have `archived` before the order, because most sessions end up
-- there; who wants both reads two lists and merges them.
CREATE INDEX sessions_all ON sessions (archived, rank, id);
CREATE INDEX sessions_agent ON sessions (agent, archived, rank, id);
CREATE INDEX sessions_cwd ON sessions (cwd, archived, rank, id);
CREATE INDEX sessions_agent_cwd ON sessions (agent, cwd, archived, rank, id);
CREATE INDEX sessions_agent_session ON sessions (agent_session, archived, rank, id) WHERE agent_session IS NOT NULL;
-- Few sessions are busy at a time, so that other filters can be tried on each of them.
CREATE INDEX sessions_busy ON sessions (archived, rank, id) WHERE busy = 1;

CREATE TABLE slots (
    session INTEGER NOT NULL,
    name TEXT NOT NULL,
    seq INTEGER NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;

-- `seq` is the last change that wrote this row. Appending leaves it alone: the last segment of the content knows of
-- later changes. `inherited` is how many bytes of the content came with a copy, and NULL while all of them did: then
-- the numbers of the segments are those of another session and say nothing here.
CREATE TABLE entries (
    session INTEGER NOT NULL,
    created INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    content INTEGER NOT NULL,
    inherited INTEGER,
    head TEXT NOT NULL,
    PRIMARY KEY (session, created)
) STRICT, WITHOUT ROWID;

-- How many entries have a content, for those that more than one has. An index of entries by content would tell too, but
-- a fork would have to write all over it, and more so with each fork that there is.
CREATE TABLE shared (
    content INTEGER PRIMARY KEY,
    entries INTEGER NOT NULL
) STRICT;

-- The number that no content has had yet, in its one row.
CREATE TABLE contents (
    next INTEGER NOT NULL
) STRICT;
INSERT INTO contents (next) VALUES (1);

-- A content is the texts of its segments in the order of `n`. `closed` segments are large enough to be left alone;
-- the open ones at the end are merged into a closed one when there are many.
CREATE TABLE segments (
    content INTEGER NOT NULL,
    n INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    closed INTEGER NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (content, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE loose_values (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
