"""What an agent tells Prometheus, and the endpoint where it does: one subject a module."""
