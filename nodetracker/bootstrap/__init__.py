"""The composition root: configuration becomes settings, settings become parts.

A module for each program's parts. It is all that reads the configuration, beside
the commands, and all that knows which concrete store and drivers there are.
"""
