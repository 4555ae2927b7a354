//! Where state lives: memory, and SQLite on disk.
