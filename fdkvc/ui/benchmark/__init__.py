"""The benchmark page."""
