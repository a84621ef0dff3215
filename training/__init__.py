"""Training of the embedded model. Importing this sets the thread policy before torch starts."""

import os

# Two processes share the cores: an idle thread must sleep, not spin (spinning halves both).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KMP_BLOCKTIME", "0")
