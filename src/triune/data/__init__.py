"""Text and tasks: where they come from, and how they become what a model trains on."""
