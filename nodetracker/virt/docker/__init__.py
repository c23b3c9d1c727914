"""The driver of container engines that speak Docker's API; the only package that imports docker."""
