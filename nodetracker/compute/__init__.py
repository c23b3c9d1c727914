"""The agent's core: audits, heartbeat and identity; it reaches the world through ports."""
