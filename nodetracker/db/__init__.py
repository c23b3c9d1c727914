"""Store rows in SQLite, MariaDB, MySQL or PostgreSQL, or in memory.

`nodetracker.ports` says what each method of the store does; the function that carries it out
has the same name, and says only what is its own.
"""
