"""New records for predictions."""

from typing import Any

CATEGORIES: dict[str, Any] = {"features": ["age", "pulse", "visit"], "categories": {"visit": ["2026-01/1", "other"]}}
"""A declaration of the visits of `months` with a text column."""
HEADER = "pulse,visit,age,patient\n"
NEW = f"{HEADER}80,other,50,p1\n112,2026-01/1,20,p2\n,other,99,p3\n"
