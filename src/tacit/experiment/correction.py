"""Settings that are corrected in a run on private data, which cannot be begun anew without another charge.

What was planned and charged stays: a setting that changes a plan (steps, batch, noise, shares) is refused after
the run began. Others (a learning rate, momentum, a network's option that fits the same plan) count from here on:
for the steps of an unfinished task that were not drawn, and for the tasks that follow.
"""

from tacit.data.stream import StreamInfo
from tacit.errors import ConfigError
from tacit.experiment.config import Config
from tacit.experiment.folder import RunFolder, changed
from tacit.experiment.seed import new_learner
from tacit.privacy.events import to_json


def corrected(config: Config, place: RunFolder, info: StreamInfo) -> None:
    """Take other settings of the learner into the run's configuration; those that are no correction are left for
    `RunFolder.begin` to refuse, and those that change what is charged are refused here."""
    begun = place.config()
    other = changed(config, begun)
    if not other or any(not key.startswith("learner.") or key == "learner.method" for key in other):
        return
    now = config.model_copy(update={"threads": config.threads or begun.threads, "name": begun.name})
    if _plans(begun, info) != _plans(now, info):
        key, (before, value) = next(iter(other.items()))
        raise ConfigError(
            f"{place.path} was begun, and charged, with {key} = {before!r}; {value!r} changes what is read and paid "
            "for; go on with plans as they were (a learning rate or momentum may change), or start a new run by --out"
        )
    place.correct(now)


def _plans(config: Config, info: StreamInfo) -> list[list[str]]:
    """All that a unit may be charged for, as text."""
    learner = new_learner(config, config.budget.make(info.unit), config.seeds[0])
    learner.start(info)
    return [[to_json(event) for event in events] for events in learner.charges()]
