"""Which models are served: loading, switching, draining, and the way of one call through them."""
