"""Schemas of queries, bodies and answers, one module for each noun."""
