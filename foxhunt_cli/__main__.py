"""``python -m foxhunt_cli`` is ``foxhunt``."""

from foxhunt_cli.cli.start import main

main()
