"""What is wrong with a project or a bundle's folder: every finding, one a line."""
