"""Store rows in SQLite, MariaDB, MySQL or PostgreSQL, or in memory."""
