"""Sphinx configuration; the build needs no network."""

import subprocess

project = "nodetracker"
author = "The nodetracker developers"
copyright = "the nodetracker developers"  # noqa: A001 - Sphinx's own name

extensions = ["myst_parser", "reno.sphinxext"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
html_theme = "alabaster"

# reno reads the changelog from git's history; without all of it the page is left out.
_shallow = subprocess.run(
    ["git", "rev-parse", "--is-shallow-repository"],  # noqa: S607 - git, wherever it is
    capture_output=True,
    text=True,
    check=False,
)
if _shallow.stdout.strip() != "false":
    exclude_patterns.append("changelog.md")
    suppress_warnings = ["toc.excluded", "myst.xref_missing"]
