"""From a float model to an INT8 one in its project."""
