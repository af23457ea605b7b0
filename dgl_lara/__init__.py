"""dgl-lara: explain any graph neural network in one feed-forward pass (LARA, on DGL)."""

import os

__version__ = "0.1.0"

# Both must be set before torch and dgl load. Without the first, idle OpenMP threads spin and a GCN epoch on
# few cores takes up to ten times as long; without the second, dgl writes a settings file into the home folder.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("DGLBACKEND", "pytorch")
