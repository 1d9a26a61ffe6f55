"""The pocket benchmark: a small English-like world, its corpus, and tasks whose answers follow from the world.

`words` says what the words mean, `facts` what is true in a scene and what follows from it, `phrases` how it is said;
`stories` makes the corpus, `sentences`, `pairs` and `squad` the tasks, `write` the files.
"""

from triune.data.pocket.write import DEFAULT_DOCUMENTS, GENERATOR_VERSION, write_pocket

__all__ = ["DEFAULT_DOCUMENTS", "GENERATOR_VERSION", "write_pocket"]
