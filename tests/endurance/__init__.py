"""Days of work in minutes, by request."""
