"""What MLflow loads a release with: `mlflow.pyfunc.load_model("models:/NAME/VERSION").predict(X)`.

The name of this module is in stored models, so it stays where it is.
"""

from typing import Any

import numpy as np

from tacit.learners.base.registry import load_learner


class PyfuncRelease:
    """A release as MLflow's `python_function`."""

    def __init__(self, folder: str) -> None:
        self._learner = load_learner(folder)

    def predict(self, model_input: Any, params: Any = None) -> Any:
        """The labels of some records.

        Args:
            model_input: A data frame or array with one row for each record.
            params: Nothing; MLflow passes it.

        Returns:
            An array of labels.
        """
        rows = np.asarray(model_input.to_numpy() if hasattr(model_input, "to_numpy") else model_input)
        return self._learner.predict(rows.reshape(len(rows), *self._learner.stream_.shape))


def _load_pyfunc(path: str) -> PyfuncRelease:
    """MLflow's entry point."""
    return PyfuncRelease(path)
