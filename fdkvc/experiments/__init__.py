"""Many dialogs: statistics, workers, and the runs whose numbers are judged."""
