"""Scripts that produced what is shipped: the bundled model, the tables and the map."""
