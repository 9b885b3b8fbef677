"""Shareable reports: a scene, or a whole run, as one self-contained HTML file."""
