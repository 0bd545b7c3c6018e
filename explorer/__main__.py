"""`python -m explorer` and the `explorer` command."""

from explorer.cli.app import main

if __name__ == "__main__":
    main()
