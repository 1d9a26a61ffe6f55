"""The verbs of the command, by area. Heavy imports live inside the verbs, so that help answers at once."""
