"""One file a claim; each prints a table and, as its last line, one line of JSON."""

import os

# Before torch is loaded: threads that spin while they wait take the other processes' cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
