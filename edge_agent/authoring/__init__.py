"""From a publisher's files to a signed bundle."""
