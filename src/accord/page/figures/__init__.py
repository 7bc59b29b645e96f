"""The plots of a report, drawn by matplotlib as SVG."""
