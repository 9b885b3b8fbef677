"""The report on the paper's tables, figures and claims."""
