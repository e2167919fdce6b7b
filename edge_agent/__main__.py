"""`python -m edge_agent`."""

from edge_agent.cli.main import main

if __name__ == "__main__":
    main()
