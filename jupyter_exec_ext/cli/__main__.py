"""Entry point of ``python -m jupyter_exec_ext.cli``."""

import sys

from .main import main

sys.exit(main())
