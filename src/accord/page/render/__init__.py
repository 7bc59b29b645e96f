"""The parts of a report as HTML, as Markdown and as LaTeX."""
