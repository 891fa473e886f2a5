"""How long a privacy number takes: import, ε of 10,000 steps, calibration of a plan. Each in a fresh process."""

import subprocess
import sys

CASES = {
    "import tacit": "import tacit",
    "from tacit import Budget, GradientPlan, Ledger, Vault": "from tacit import Budget, GradientPlan, Ledger, Vault",
    "ε by PLD (q=.01, σ=1, 10,000 steps)": "print(accounting.epsilon(event, 1e-5, method='pld'))",
    "ε by RDP (the same)": "print(accounting.epsilon(event, 1e-5, method='rdp'))",
    "noise for ε=1 (the same)": "print(calibrate.gradient_noise(budget, rate=.01, steps=10_000))",
}
SETUP = """
import time
from tacit import Budget
from tacit.privacy import accounting, calibrate, events
event = events.poisson_gaussian(0.01, 1.0, 10_000)
budget = Budget(epsilon=1.0, delta=1e-5)
"""


def main() -> None:
    for name, code in CASES.items():
        setup = "import time\n" if "import" in code else SETUP
        timed = f"{setup}start = time.perf_counter()\n{code}\nprint(time.perf_counter() - start)"
        out = subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True).stdout.split()
        value = f"{float(out[0]):.4f}   " if len(out) > 1 else ""
        print(f"{name:58s} {value}{float(out[-1]):.3f} s")


if __name__ == "__main__":
    main()
