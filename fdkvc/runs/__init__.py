"""What every kind of run shares: jobs, workers, tables, files."""
