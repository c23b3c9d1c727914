"""Driver of container engines with Docker's API; the only package that imports docker."""
