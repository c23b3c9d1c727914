"""What a fleet of agents costs the servers that all of them share."""
