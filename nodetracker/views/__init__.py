"""What page, terminal, REST and notifications show alike: pure, from rows to values and texts."""
