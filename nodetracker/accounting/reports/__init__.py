"""What operators and listeners are shown: summaries, drift, health, notifications."""
