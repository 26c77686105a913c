"""`python -m hypergossip.cli`."""

from . import main

main()
