"""The placement service: sessions, a client, and the reporter of an agent's nodes."""
