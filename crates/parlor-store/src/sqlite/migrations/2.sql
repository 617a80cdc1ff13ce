-- Version 2: what was said can be searched for.

-- The words of contents and of titles: the row of a content has its number, that of a title the negative key of its
-- session. The text itself is not kept a second time.
CREATE VIRTUAL TABLE word_index USING fts5 (
    text, content = '', contentless_delete = 1, tokenize = 'ascii'
);

-- What else is known of a row of the index. A content that several entries have is found once: in the entry that is
-- named here, which has it. A title has a `created` of 0, and its session knows how old it is.
CREATE TABLE words (
    content INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    created INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at INTEGER NOT NULL
) STRICT;

-- Sessions that may have contents in common have the same root; one that was never copied from or to is not here. When
-- a session loses a content that others still have, it is one of these that has it.
CREATE TABLE families (
    session INTEGER PRIMARY KEY,
    root INTEGER NOT NULL
) STRICT;
CREATE INDEX families_root ON families (root);
-- Who copied from whom was not written down before, so that all who share anything are one family.
INSERT INTO families (session, root)
    SELECT DISTINCT session, 0 FROM entries
    WHERE EXISTS (SELECT 1 FROM shared) AND content IN (SELECT content FROM shared);

-- Sessions whose words were never handed in: those that were there before.
CREATE TABLE unindexed (
    session INTEGER PRIMARY KEY
) STRICT;
INSERT INTO unindexed (session) SELECT key FROM sessions;
