"""What the paper prints and claims, as data; nothing here is measured."""
