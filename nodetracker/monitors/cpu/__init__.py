"""Monitor of this machine's CPUs: how busy they are, and their frequency."""
