"""``python -m moldau`` is the same as the ``moldau`` command."""

from .cli.main import main

if __name__ == "__main__":
    main()
