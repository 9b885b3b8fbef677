"""The paper's tables and claims as data; nothing here is measured."""
