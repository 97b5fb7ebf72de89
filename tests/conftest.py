"""What all tests stand on."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has them ignore Ctrl-C, and the programs that they start inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
