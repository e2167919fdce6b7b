"""Answers that were given before, in SQLite."""
