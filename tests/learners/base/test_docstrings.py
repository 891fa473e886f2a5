"""help(learner) says what it does, and every setting what it means."""

import ast
import inspect
from dataclasses import fields, is_dataclass

import pytest

from tacit.learners import LEARNERS, find


def documented(cls: type) -> set[str]:
    """The fields of one class that have a docstring under them."""
    (tree,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(tree, ast.ClassDef)
    return {
        one.target.id
        for one, after in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
        and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
    }  # fmt: skip


@pytest.mark.parametrize("name", sorted(LEARNERS))
def test_every_setting_says_what_it_means(name: str) -> None:
    """Where it is made, or in a class below it that gives it another default."""
    learner = find(name)
    known = set().union(*(documented(cls) for cls in learner.__mro__ if is_dataclass(cls)))
    assert {one.name for one in fields(learner)} - known == set()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("Pool", ("tasks_per_learner", "early_start", "fine_tune", "vote", "finished", "margin")),
        ("AdaptiveDPSGD", ("target", "watch_on", "factor", "least", "by_size")),
    ],
)
def test_help_names_the_settings(name: str, settings: tuple[str, ...]) -> None:
    said = inspect.getdoc(find(name)) or ""
    assert len(said.splitlines()) >= 4 and all(f"`{one}`" in said for one in settings)
