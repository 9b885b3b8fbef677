"""Controls, links, runs and views: the only part of the package that knows Streamlit."""
