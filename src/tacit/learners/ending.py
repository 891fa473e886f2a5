"""Where a learner's own settings let it learn so much and no more, though the stream goes on."""

from tacit.privacy.vault import Vault


class Ending:
    """The answers of a learner that has no end of its own."""

    def over(self, number: int) -> str | None:
        """Why task `number`, and all after it, are never learnt: words from public settings. None: they may be."""
        return None

    def let_go(self, vault: Vault) -> None:
        """Retire all records that are held, since nothing is learnt any more. Done again, it does nothing."""
        return
