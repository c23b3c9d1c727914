"""The composition root: build settings from the configuration, and the parts of each program.

Only this package and the commands read the configuration, and only this package
chooses the concrete store and drivers.
"""
