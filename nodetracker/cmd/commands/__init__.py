"""The commands of nodetracker-manage, one noun a module."""
