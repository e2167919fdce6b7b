"""The command line: each noun is one lazily imported file that parses, calls and prints."""
