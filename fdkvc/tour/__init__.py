"""The pages for a first visit: Start, Story, Policies, About."""
