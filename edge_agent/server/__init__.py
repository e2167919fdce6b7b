"""HTTP to calls and back: translation only."""
