//! Snapshots of every kind of entry.
