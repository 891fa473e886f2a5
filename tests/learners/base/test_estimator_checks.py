"""scikit-learn's own estimator checks: those that apply to a learner are run, the others are excluded with a reason.

A learner declares its stream before it sees records, learns with `partial_fit` once for each task, and refuses
`fit(X, y)`, because a second fit would charge the same people again. Most of scikit-learn's checks call `fit(X, y)`.
"""

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from support.small_world import facts, make

pytestmark = pytest.mark.filterwarnings("ignore:Estimator CosineClassifier does not inherit:UserWarning")
FIT = "it calls fit(X, y), which a learner refuses"
FIT_MESSAGE = "it expects messages of fit(X, y), which a learner refuses for every input"
VACUOUS = "it would pass only because fit(X, y) is refused"
EXCLUDED = {
    "check_array_api_input": FIT,
    "check_classifier_data_not_an_array": FIT,
    "check_classifiers_classes": FIT,
    "check_classifiers_one_label": FIT,
    "check_classifiers_one_label_sample_weights": FIT_MESSAGE,
    "check_classifiers_regression_target": FIT_MESSAGE,
    "check_classifiers_train": FIT,
    "check_complex_data": FIT_MESSAGE,
    "check_decision_proba_consistency": "a learner has no decision_function, so nothing is compared",
    "check_dict_unchanged": FIT,
    "check_do_not_raise_errors_in_init_or_set_params": "a budget of another type is refused when a learner is made",
    "check_dont_overwrite_parameters": FIT,
    "check_dtype_object": FIT,
    "check_estimator_sparse_array": FIT,
    "check_estimator_sparse_matrix": FIT,
    "check_estimator_sparse_tag": FIT,
    "check_estimators_dtypes": FIT,
    "check_estimators_empty_data_messages": FIT_MESSAGE,
    "check_estimators_fit_returns_self": FIT,
    "check_estimators_nan_inf": FIT_MESSAGE,
    "check_estimators_overwrite_params": FIT,
    "check_estimators_partial_fit_n_features": "its three classes are not the labels that the stream declares",
    "check_estimators_pickle": FIT,
    "check_f_contiguous_array_estimator": FIT,
    "check_fit1d": VACUOUS,
    "check_fit2d_1feature": FIT_MESSAGE,
    "check_fit2d_1sample": FIT_MESSAGE,
    "check_fit2d_predict1d": FIT,
    "check_fit_check_is_fitted": FIT,
    "check_fit_idempotent": FIT,
    "check_fit_score_takes_y": FIT,
    "check_n_features_in": FIT,
    "check_n_features_in_after_fitting": FIT,
    "check_non_transformer_estimators_n_iter": "a learner has no max_iter, so nothing is checked",
    "check_parameters_default_constructible": "the default budget is an object of tacit, which scikit-learn refuses",
    "check_pipeline_consistency": "the noise of a learner is new in every run, so two fits differ",
    "check_positive_only_tag_during_fit": FIT,
    "check_readonly_memmap_input": FIT,
    "check_requires_y_none": FIT_MESSAGE,
    "check_supervised_y_2d": FIT,
    "check_supervised_y_no_nan": VACUOUS,
}
"""The checks that are not run, and why."""
APPLY = {
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_estimators_unfitted",
    "check_get_params_invariance",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_set_params",
    "check_valid_tag_types",
}


def checks() -> dict[str, tuple[Any, Callable[[Any], None]]]:
    """The checks that scikit-learn has for a learner, by name: the estimator and the check."""
    generated = estimator_checks_generator(make("cosine", stream=facts(1)))
    return {check.func.__name__: (learner, check) for learner, check in generated}


@pytest.mark.parametrize("name", sorted(APPLY))
def test_a_learner_passes_the_checks_that_apply(name: str) -> None:
    learner, check = checks()[name]
    check(learner)


def test_every_check_is_run_or_excluded_with_a_reason() -> None:
    assert set(checks()) <= APPLY | set(EXCLUDED)  # versions of scikit-learn differ
    assert not APPLY & set(EXCLUDED)
