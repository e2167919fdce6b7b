"""``python -P -m edge_agent.workers.child``: what the daemon starts."""

from edge_agent.workers.child.main import main

if __name__ == "__main__":
    main()
