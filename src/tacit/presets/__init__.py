"""The experiments of the papers, and a few more, as YAML files: `tacit presets` lists them."""

from pathlib import Path

PRESETS = Path(__file__).parent
REFERENCE = "reference"
"""The name of the file with a paper's own tables, among its presets."""
REPRODUCTION = "reproduction"
"""The name of the file that lists the papers' tables and figures."""
