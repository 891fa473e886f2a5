"""`make bench`: all CPU figures of the README, one after the other. For a GPU: `python bench/gpu.py`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

for name in ("noise.py", "accounting.py", "ledger.py", "vault.py", "gradients.py"):
    print(f"\n== bench/{name}", flush=True)
    subprocess.run([sys.executable, str(HERE / name), *sys.argv[1:]], check=True)
