"""What can be handed over: a scene, or a whole run, as one HTML file that needs nothing else."""
