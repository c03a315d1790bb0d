"""Sphinx over the repository's Markdown: ``make docs``.

The sources are the pages where they lie, so that a link leads to the same place here and on the
forge. The root of the repository is the root of the pages; what is none is not looked at.
"""

from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer

ROOT = Path(__file__).parent.parent

project = "Gantry"
copyright = "the authors of Gantry"  # noqa: A001 (Sphinx's name for it)
html_title = "Gantry"
html_theme = "furo"
html_show_sphinx = False
html_copy_source = False

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["*.md", "docs/**.md", "charts/gantry/README.md", "examples/**.md"]
exclude_patterns = [
    entry.name
    for entry in ROOT.iterdir()
    if entry.is_dir() and entry.name not in {"charts", "docs", "examples"}
]
myst_heading_anchors = 4  # headings are linked to by their words, as forges do
suppress_warnings = [
    "myst.header",  # the changelog is written by towncrier
]


def setup(app: Any) -> None:
    """Diagrams stay text: a browser needs a script of somebody else's to draw them."""
    app.add_lexer("mermaid", TextLexer)
