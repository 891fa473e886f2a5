"""What a newcomer tries first is answered by one sentence that says what to do."""

from dataclasses import replace

import numpy as np
import pytest

from support.small_world import facts, records
from tacit import Budget
from tacit.errors import LearnerError
from tacit.learners import LEARNERS, find
from tacit.learners.base.learner import ENDLESS
from tacit.learners.closed_form.cosine import CosineClassifier
from tacit.learners.closed_form.lifelong import LifelongDP


def said(error: pytest.ExceptionInfo[Exception]) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("method", sorted(LEARNERS))
def test_a_number_is_no_budget(method: str) -> None:
    with pytest.raises(LearnerError, match=r"budget must be a Budget, such as Budget\(epsilon=") as error:
        find(method)(budget=2.0)  # type: ignore[arg-type]
    assert "got 2.0" in said(error)


def test_nor_is_one_that_is_set_later() -> None:
    with pytest.raises(LearnerError, match="budget must be a Budget"):
        CosineClassifier().set_params(budget=2.0).start(facts())


@pytest.mark.parametrize("method", sorted(LEARNERS))
def test_fit_is_refused_with_the_way_out(method: str) -> None:
    learner = find(method)(stream=facts())
    for call in (lambda: learner.fit(*records(0)), lambda: learner.fit(X=records(0)[0], y=records(0)[1])):  # type: ignore[call-arg]
        with pytest.raises(LearnerError, match=r"call partial_fit\(X, y\) once for each") as error:
            call()
        assert method in said(error)


def test_the_certificate_is_asked_for_too_early() -> None:
    learner = CosineClassifier(stream=facts(2), budget=Budget(epsilon=50.0, delta=1e-5))
    assert not hasattr(learner, "certificate_")
    with pytest.raises(
        LearnerError, match="nothing is learned yet, so there is no certificate; call partial_fit first"
    ):
        _ = learner.certificate_
    with pytest.raises(AttributeError):
        _ = learner.certificate_
    learner.partial_fit(*records(0))
    assert hasattr(learner, "certificate_") and learner.certificate_.epsilon is not None


def test_windows_with_axes_first_are_refused() -> None:
    info = replace(facts(), shape=(3, 100))
    with pytest.raises(LearnerError, match=r"\(3, 100\) has fewer times than axes; store windows with time first"):
        LifelongDP(features="spectrum").start(info)
    LifelongDP(features="spectrum", width=8).start(replace(facts(), shape=(100, 3)))


def test_the_certificate_says_what_lifelong_keeps() -> None:
    learner = LifelongDP(stream=facts(2), width=8, budget=Budget(epsilon=50.0, delta=1e-5))
    learner.partial_fit(*records(0))
    page = " ".join(str(learner.certificate_).split())
    seen = "sees every noisy sum and every model and knows all other records; no memory (records are "
    assert seen + "read in their own task only)" in page
    assert "no batches" in page and "batches secret" not in page
    naive = find("NaiveDPSGD")(stream=facts(2), budget=Budget(epsilon=50.0, delta=1e-5))
    naive.partial_fit(*records(0))
    assert "no memory (records are read in their own task only), batches secret" in " ".join(
        str(naive.certificate_).split()
    )
    assert np.isfinite(naive.certificate_.epsilon or np.inf)


def test_the_learners_named_for_endless_streams_are_those_that_can_learn_them() -> None:
    assert list(ENDLESS) == [name for name in LEARNERS if find(name).supports_endless]
