"""Sphinx configuration; the build needs no network."""

import logging
import subprocess

project = "nodetracker"
author = "The nodetracker developers"
copyright = "the nodetracker developers"  # noqa: A001 - Sphinx's own name

extensions = ["myst_parser", "reno.sphinxext"]
source_suffix = {".md": "markdown"}
root_doc = "index"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
nitpicky = True
html_title = "nodetracker"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False  # and no button that shows it
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0a5a9c", "color-brand-content": "#0a5a9c"},
    "dark_css_variables": {"color-brand-primary": "#7cbcf0", "color-brand-content": "#7cbcf0"},
    "top_of_page_buttons": [],
}

# accessible-pygments 0.0.5, which furo imports, lets all libraries log to stderr.
logging.getLogger("reno").setLevel(logging.WARNING)

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
