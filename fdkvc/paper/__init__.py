"""The paper's tables and claims, and everything that measures them again."""
