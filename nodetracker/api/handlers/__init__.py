"""Handlers of requests, one module for each noun of each family."""
