"""Reports for operators and notification listeners: summaries, drift, health, notifications."""
