"""New records are read as the training records were, and what is something else is refused by name."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from support.predicting import HEADER, NEW
from tacit.data.declared.declaration import Declaration
from tacit.data.input_form import InputColumn, InputForm
from tacit.errors import DataError
from tacit.prediction.new_records import read_rows
from tacit.privacy.vault.sources.declared import from_arrays, open_declared

FORM = InputForm(
    kind="table",
    shape=(4,),
    columns=(
        InputColumn(name="age", limits=(0.0, 100.0)),
        InputColumn(name="pulse", limits=(30.0, 200.0)),
        InputColumn(name="visit", categories=("2026-01/1", "other")),
    ),
    fill=60.0,
)
IMAGES = InputForm(kind="images", shape=(3, 4, 4), limits=(0.0, 255.0))
ARRAYS = InputForm(kind="arrays", shape=(2, 2), limits=(0.0, 10.0))


def write(folder: Path, text: str, name: str = "new.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_columns_are_found_by_their_names(tmp_path: Path) -> None:
    found = read_rows(FORM, write(tmp_path, NEW), ("patient",))
    want = [[0.5, 50 / 170, 0, 1], [0.2, 82 / 170, 1, 0], [0.99, 30 / 170, 0, 1]]
    np.testing.assert_allclose(found.x, want, rtol=1e-6)
    assert found.x.dtype == np.float32 and found.notes == ()
    assert [(name, column.to_pylist()) for name, column in found.kept] == [("patient", ["p1", "p2", "p3"])]


@pytest.mark.parametrize("kind", ["csv", "parquet", "pandas", "polars", "arrow", "text column"])
def test_every_kind_of_table_gives_the_same(tmp_path: Path, kind: str) -> None:
    path = write(tmp_path, NEW)
    frame = pd.read_csv(path)
    if kind == "parquet":
        parquet.write_table(pa.Table.from_pandas(frame), tmp_path / "new.parquet")
    source: Any = {
        "csv": path,
        "parquet": tmp_path / "new.parquet",
        "pandas": frame,
        "polars": pl.read_csv(path),
        "arrow": pa.Table.from_pandas(frame),
        "text column": frame.astype({"age": str}),
    }[kind]
    np.testing.assert_array_equal(read_rows(FORM, source).x, read_rows(FORM, path).x)


def test_training_records_are_read_bit_for_bit(visits: Path) -> None:
    data = visits.parents[4] / "data"
    stream = open_declared(data / "visits.yaml")
    form = stream.info.inputs
    assert form is not None and [one.name for one in form.columns] == ["age", "pulse", "visit"] and form.task == "month"
    trained = np.concatenate([task.records.reader.read(task.info.name)[0] for task in stream])
    assert len(trained) == 240
    np.testing.assert_array_equal(read_rows(form, data / "visits.csv").x, trained)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (NEW.replace("pulse", "puls"), "has no column 'pulse' that the model reads; did you mean puls"),
        ("a,b\n1,2\n", "has no column 'age', 'pulse', 'visit' that the model reads; it has a, b"),
        (NEW.replace("pulse", "age"), "has two columns 'age'; rename one"),
        (
            f"{HEADER}80,other,600,p\n90,other,700,p\n",
            "'age' has 100% of its values outside .* 0 to 100; check its unit",
        ),
        (f"{HEADER}80,other,old,p\n90,other,young,p\n", "'age' holds no number"),
        (f"{HEADER}80,home,50,p\n90,zoo,50,p\n", "'visit' has none of the declared values 2026-01/1, other, but"),
        (f"{HEADER}80,other,50,p\n90,other\n", "record 2 has another number of cells than the header"),
        ("", "is empty; the first line has the names"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(DataError, match=words):
        read_rows(FORM, write(tmp_path, text))


def test_single_cells_that_do_not_fit_are_said(tmp_path: Path) -> None:
    text = f"{HEADER}80,home,50,p\nfast,other,50,p\n90,other,101,p\n70,other,20,p\n"
    found = read_rows(FORM, write(tmp_path, text))
    assert len(found.x) == 4 and found.x[0, 2:].tolist() == [0, 0] and found.x[2, 0] == 1
    said = " ".join(found.notes)
    assert "'age': 25.0% of the values are outside 0 to 100" in said
    assert "'pulse': 1 cell without a number, read as missing" in said
    assert "'visit' has home in 1 row, which the model has never seen" in said


def test_another_unit_can_be_accepted(tmp_path: Path) -> None:
    path = write(tmp_path, f"{HEADER}80,other,600,p\n")
    assert read_rows(FORM, path, any_range=True).x[0, 0] == 1


def test_every_line_gets_a_row(tmp_path: Path) -> None:
    """The vault drops lines that it cannot read; here an empty cell is a missing number and stays."""
    path = write(tmp_path, f'{HEADER},,,\n80,"other",50,"a, b"\n,,,\n')
    assert read_rows(FORM, path).x.shape == (3, 4)


def test_images(tmp_path: Path) -> None:
    from PIL import Image

    (tmp_path / "in" / "ward").mkdir(parents=True)
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    Image.fromarray(pixels).save(tmp_path / "in" / "b.png")
    Image.fromarray(pixels[::-1]).save(tmp_path / "in" / "ward" / "a.png")
    found = read_rows(IMAGES, tmp_path / "in")
    np.testing.assert_allclose(found.x[0], pixels.transpose(2, 0, 1) / 255.0, rtol=1e-6)
    assert [(name, column.to_pylist()) for name, column in found.kept] == [("file", ["b.png", "ward/a.png"])]
    assert read_rows(IMAGES, tmp_path / "in" / "b.png").x.shape == (1, 3, 4, 4)
    (tmp_path / "in" / "broken.png").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"broken\.png cannot be read as an image"):
        read_rows(IMAGES, tmp_path / "in")
    with pytest.raises(DataError, match="is an image or a folder of images, and the model was trained on the rows of"):
        read_rows(FORM, tmp_path / "in")


def test_arrays(tmp_path: Path) -> None:
    x = np.array([[[0, 10], [5, 20]]])
    assert read_rows(ARRAYS, x).x.tolist() == [[[0, 1], [0.5, 1]]]
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x, y=[1])
    for source in (tmp_path / "x.npy", tmp_path / "x.npz", x.reshape(1, 4), x.tolist()):
        np.testing.assert_array_equal(read_rows(ARRAYS, source).x, read_rows(ARRAYS, x).x)
    assert read_rows(ARRAYS, x).notes == ()
    gaps = read_rows(ARRAYS, np.array([[np.nan, 10, 5, np.inf]]))
    assert gaps.notes == ("the data: 2 values not finite, read as missing",) and np.isfinite(gaps.x).all()
    with pytest.raises(DataError, match=r"shape \(3,\), and the model reads \(2, 2\)"):
        read_rows(ARRAYS, np.zeros((5, 3)))
    with pytest.raises(DataError, match="is a table, and the model was trained on arrays of numbers"):
        read_rows(ARRAYS, pd.DataFrame({"a": [1]}))
    with pytest.raises(DataError, match="has no column names, and the model reads the columns age, pulse, visit"):
        read_rows(FORM, np.zeros((5, 4)))
    np.savez(tmp_path / "two.npz", a=x, b=x)
    with pytest.raises(DataError, match="has no array 'x' but a, b"):
        read_rows(ARRAYS, tmp_path / "two.npz")
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="cannot be read as npy"):
        read_rows(ARRAYS, tmp_path / "objects.npy")


def test_training_arrays_are_read_bit_for_bit() -> None:
    facts = {"name": "a", "labels": [0, 1], "tasks": [{"name": "t", "size": 9}], "scaling": [-3, 3], "range": [-1, 1]}
    x = np.random.default_rng(0).normal(size=(20, 5)) * 3
    x[3, 2] = np.nan
    stream = from_arrays(Declaration.of(facts), x, np.arange(20) % 2)
    assert stream.info.inputs is not None
    trained = stream[0].records.reader.read("t")[0]
    np.testing.assert_array_equal(read_rows(stream.info.inputs, x).x, trained)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no file or folder"):
        read_rows(FORM, tmp_path / "nothing.csv")
    with pytest.raises(DataError, match=r"is of no known kind; it may be \.csv"):
        read_rows(FORM, write(tmp_path, "x", "new.docx"))
    with pytest.raises(DataError, match="cannot be read as parquet"):
        read_rows(FORM, write(tmp_path, "x", "new.parquet"))
    with pytest.raises(DataError, match="has no column 'patients' to keep; did you mean patient"):
        read_rows(FORM, write(tmp_path, NEW), ("patients",))
    (tmp_path / "latin.csv").write_bytes(NEW.encode() + "80,other,50,Zoë\n".encode("latin-1"))
    with pytest.raises(DataError, match="not in utf-8"):
        read_rows(FORM, tmp_path / "latin.csv")
