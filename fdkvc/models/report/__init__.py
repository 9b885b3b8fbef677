"""Answers as HTML, and charts of judged policies."""
