"""From a model file to a project: what the file tells, and holes where it tells nothing."""
