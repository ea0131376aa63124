"""`python -m afterpass.cli`: the command, where its script is not on the path."""

from .main import main

if __name__ == "__main__":
    main()
