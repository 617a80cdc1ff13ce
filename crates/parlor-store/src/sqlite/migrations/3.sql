-- Version 3: a segment is found without reading its text, and nothing stays on the disk of words that were removed.

-- The segments of a content have the keys `content << 20 | n`: this is the order of the table itself. A table without
-- rowids compares whole rows, so that every search through it read the long texts that it passed.
ALTER TABLE segments RENAME TO segments_of_version_2;
CREATE TABLE segments (
    key INTEGER PRIMARY KEY,
    seq INTEGER NOT NULL,
    closed INTEGER NOT NULL,
    text TEXT NOT NULL
) STRICT;

-- The index forgets a text when it is given the text again, which is why `indexed_texts` has it: an index that deletes by
-- itself keeps the words and only marks the row.
DROP TABLE word_index;
CREATE VIRTUAL TABLE word_index USING fts5 (text, content = '', tokenize = 'ascii');
INSERT INTO word_index (word_index, rank) VALUES ('secure-delete', 1);
CREATE TABLE indexed_texts (
    content INTEGER PRIMARY KEY,
    text TEXT NOT NULL
) STRICT;
DELETE FROM words;
INSERT OR IGNORE INTO unindexed (session) SELECT key FROM sessions;
