"""A report as one file: plain HTML with inline SVG, no script, nothing fetched."""
