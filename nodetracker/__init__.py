"""nodetracker keeps the truth about the resources of compute hosts."""
