"""SQLite files in the data folder, and the one writer for all of them."""
