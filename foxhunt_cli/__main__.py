"""``python -m foxhunt_cli`` is ``foxhunt``."""

from foxhunt_cli.cli.app import main

main()
