"""SQLite files in the data folder, and the file of reservations."""
