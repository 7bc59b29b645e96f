"""The report of a run as a page, as Markdown tables and as LaTeX tables."""
