"""Sphinx configuration; the build needs no network."""

project = "nodetracker"
author = "The nodetracker developers"
copyright = "the nodetracker developers"  # noqa: A001 - Sphinx's own name

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
html_theme = "alabaster"
