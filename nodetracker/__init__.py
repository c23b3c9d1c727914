"""Track the resources of compute hosts."""
