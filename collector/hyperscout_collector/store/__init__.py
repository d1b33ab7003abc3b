"""One writer for everything on disk, SQLite files in the data folder, and the file of reservations."""
