"""Sessions, reference and samples of the drift gate; what it measures is `edge_agent.drift`."""
