"""A document as values, and every way to show it: in a terminal, in a notebook, as HTML, Markdown and PDF."""
