"""Values that are wrong somewhere: for options, for keys of configurations and declarations, for bytes of files."""

from copy import deepcopy
from typing import Any

from hypothesis import strategies as st

WORDS = (
    "", " ", "nan", "inf", "-inf", "-1", "0", "1", "2", "0.5", "1.5", "1e309", "1e-320", "99999999999999999999", "٣",
    "🦊", "\udcff", "a" * 300, "a/b", "../..", "[", "{", "]", "@", "=", "=1", "null", "None", "true", "yes", "~", "-",
    "--", "foo", "%s", "{x}", "[bold]", "\\", "'", '"', "\t", "2026-01", "0..9", "9..0", "a,a", ",", ";", "a: b",
    "learner.lr=1", "learner.lr=nan", "learner=", "seeds=0", "a.b.c=1", ".=1", "budget.epsilon=[]", "kind=sweep",
)  # fmt: skip
"""For options and arguments."""
FILES = (
    "visits.yaml", "visits.csv", "v.ledger", "v.ledger.keys", "r", "r/config.yaml", "r/seeds", "half", "key", "key.pub",
    "space.yaml", "policy.toml", "notes.txt", "empty", "junk", "folder", "nowhere", "nowhere/new", "new", "new.yaml",
    ".", "/", "/dev/null", "visits.csv/x", "r/seeds/seed-0/releases/02-2026-02",
    "r/seeds/seed-0/releases/02-2026-02/certificate.json", "r/seeds/seed-0/releases/02-2026-02/model.safetensors",
)  # fmt: skip


def words() -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(WORDS), st.sampled_from(FILES), st.text(max_size=20).filter(lambda t: "\0" not in t)
    )


def values() -> st.SearchStrategy[Any]:
    """What YAML can hold."""
    plain = st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, 1, -1, 2, 3, 10**6, 10**19, 10**400, -(10**9)]),
        st.sampled_from([0.0, -0.0, 0.5, 1.5, -1.5, 1e-320, 1e308, float("nan"), float("inf"), float("-inf")]),
        st.sampled_from(WORDS[:-8]),
        st.text(max_size=10),
    )
    return st.recursive(
        plain,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4),
            st.dictionaries(st.one_of(st.text(max_size=6), st.integers()), inner, max_size=3),
        ),
        max_leaves=6,
    )


@st.composite
def changed(draw: st.DrawFn, tree: Any, times: int = 3) -> Any:
    """The tree with one to three of its parts replaced, left out, or added to."""
    found = deepcopy(tree)
    for _ in range(draw(st.integers(1, times))):
        holder = found
        while True:
            if not isinstance(holder, dict | list) or not holder:
                break
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            key = draw(st.sampled_from(keys))
            inner = holder[key]
            if isinstance(inner, dict | list) and inner and draw(st.booleans()):
                holder = inner
                continue
            deed = draw(st.sampled_from(["replace", "replace", "delete", "add", "rename"]))
            if deed == "replace":
                holder[key] = draw(values())
            elif deed == "delete":
                del holder[key]
            elif isinstance(holder, list):
                holder.append(draw(values()))
            elif deed == "add":
                holder[draw(st.one_of(st.text(max_size=6), st.integers(), st.none(), st.booleans()))] = draw(values())
            else:
                holder[f"{key}{draw(st.sampled_from(['s', ' ', '.x', '_']))}"] = holder.pop(key)
            break
    return found


@st.composite
def damaged(draw: st.DrawFn, content: bytes) -> bytes:
    """The bytes with some of them changed, cut off, put in, or all of them replaced."""
    deed = draw(st.sampled_from(["flip", "flip", "cut", "insert", "double", "replace", "zeros", "empty"]))
    place = draw(st.integers(0, max(0, len(content) - 1)))
    if deed == "flip":
        found = bytearray(content)
        for _ in range(draw(st.integers(1, 8))):
            if found:
                found[draw(st.integers(0, len(found) - 1))] = draw(st.integers(0, 255))
        return bytes(found)
    if deed == "cut":
        return content[:place]
    if deed == "insert":
        return content[:place] + draw(st.binary(max_size=40)) + content[place:]
    if deed == "double":
        return content[:place] + content
    if deed == "replace":
        return draw(st.binary(max_size=400))
    return b"\0" * len(content) if deed == "zeros" else b""
