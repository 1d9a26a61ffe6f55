"""The studies of the paper as one plan: what there is to do at a scale, in which order, and the page at the end."""
