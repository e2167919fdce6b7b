"""The service: builds its parts and runs them until it is told to stop."""
