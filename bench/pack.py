"""Pack what a bare machine lacks, so that experiments run there: tacit's dependencies, and public sets of pictures.

    python bench/pack.py FOLDER [--data mnist cifar100] [--train 15000] [--test 5000] [--python 3.12]

For a machine with torch, numpy, scipy, scikit-learn and safetensors, and without a network. FOLDER then holds
`site.tar.xz` (the other dependencies, for that version of Python on x86-64 Linux) and `data/`. There:

    mkdir /tmp/site && tar xf FOLDER/site.tar.xz -C /tmp/site
    PYTHONPATH=src:/tmp/site TACIT_DATA=FOLDER/data python3 -m tacit sweep …

numba and pyarrow are too large to travel. If the machine lacks them, small stand-ins take their place: loops are not
compiled (on a GPU hardly any are run), and tables cannot be read (packed sets need none).
"""

import argparse
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PACKAGES = (
    "absl-py", "alembic", "annotated-doc", "annotated-types", "attrs", "cffi", "click", "cryptography", "dm-tree",
    "dp-accounting", "mako", "markdown-it-py", "markupsafe", "mdurl", "mpmath", "pycparser", "pydantic",
    "pydantic-core", "pygments", "pyyaml", "rich", "shellingham", "sqlalchemy", "typer", "typing-extensions",
    "typing-inspection", "wrapt",
)  # fmt: skip
PLATFORMS = ("manylinux_2_34_x86_64", "manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")
CUSTOM = '''"""Stand-ins for packages that this machine lacks."""
import importlib.util
import pathlib
import sys
for name in ("numba", "pyarrow"):
    if importlib.util.find_spec(name) is None:
        sys.path.append(str(pathlib.Path(__file__).parent / "stand_ins" / name))
'''
NUMBA = """def njit(function, **options):
    return function
"""
PYARROW = """class _Absent(type):
    def __getattr__(cls, name):
        return cls


class Absent(metaclass=_Absent):
    def __init__(self, *args, **kwargs):
        raise ImportError("pyarrow is not on this machine")


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return Absent
"""


def versions() -> dict[str, str]:
    """The versions of the packages that are installed here."""
    from importlib.metadata import version

    return {name: version(name) for name in PACKAGES}


def download(folder: Path, python: str) -> None:
    """Unpack the wheels of all packages into a folder."""
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:"]
        command += ["--python-version", python, "-d", wheels, *(f"--platform={one}" for one in PLATFORMS)]
        subprocess.run([*command, *(f"{name}=={number}" for name, number in versions().items())], check=True)
        for wheel in sorted(Path(wheels).iterdir()):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)


def stand_ins(folder: Path) -> None:
    """Write the stand-ins, and the version of tacit, which is not installed there."""
    import tacit

    about = f"Metadata-Version: 2.1\nName: tacit\nVersion: {tacit.__version__}\n"
    files = {"sitecustomize.py": CUSTOM, "stand_ins/numba/numba.py": NUMBA, "tacit.dist-info/METADATA": about}
    for module in ("__init__", "compute", "csv", "dataset", "lib", "parquet", "types"):
        files[f"stand_ins/pyarrow/pyarrow/{module}.py"] = PYARROW
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def pack(folder: Path, sets: list[str], python: str, train: int | None, test: int | None) -> None:
    from tacit.data.benchmarks.packing import pack as pack_set

    for name in sets:
        pack_set(name, folder / "data" / f"{name}.npz", train=train, test=test)
    with tempfile.TemporaryDirectory() as made:
        download(Path(made), python)
        stand_ins(Path(made))
        with tarfile.open(folder / "site.tar.xz", "w:xz") as archive:
            for one in sorted(Path(made).iterdir()):
                archive.add(one, one.name)
    size = sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
    print(f"{folder}: {size / 2**20:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", nargs="*", default=["mnist"], help="named data sets")
    parser.add_argument("--train", type=int, help="training pictures of each set; default: all")
    parser.add_argument("--test", type=int, help="test pictures of each set; default: all")
    parser.add_argument("--python", default="3.12", help="of the other machine")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    pack(options.folder, options.data, options.python, options.train, options.test)


if __name__ == "__main__":
    main()
