"""``python -m foxhunt_cli.cli``: the same as the ``foxhunt`` command."""

from foxhunt_cli.cli.start import main

main()
