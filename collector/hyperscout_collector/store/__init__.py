"""Opens SQLite files and PostgreSQL, queues their writes, and holds what replicas share in PostgreSQL."""
