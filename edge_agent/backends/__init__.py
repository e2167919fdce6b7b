"""Engines behind one interface; `registry` is the table of them."""
