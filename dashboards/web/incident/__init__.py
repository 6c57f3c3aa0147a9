"""Parts of the views in which an incident is solved: an alert, Explore, and an exchange."""
