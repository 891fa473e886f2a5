"""What the owner of the data declares about a deployment, for people who read its certificates.

The fields are those that NIST SP 800-226 and the OpenDP Deployments Registry ask for and that no program can know. They
are declared once, in the table `[deployment]` of a policy. The ledger records who adopted them and when, and every
certificate that is issued afterwards contains them, so that its signature covers them. tacit checks none of them, and
no bound depends on them.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

MOST_CHARACTERS = 2_000
MOST_ENTRIES = 20


def _plain(text: str) -> str:
    text = text.strip()
    if not text:
        raise ValueError("the text must not be empty; leave the key out, then it is not stated")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"the text must have at most {MOST_CHARACTERS} characters, it has {len(text)}")
    if any(not letter.isprintable() and letter not in "\n\t\u00a0" and ord(letter) < 0xA0 for letter in text):
        raise ValueError("the text must not contain control characters")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError("the text must be Unicode without lone surrogates") from None
    return text


class Actor(BaseModel):
    """Somebody who handles the data or the models, and the trust put in them.

    Attributes:
        name: Who.
        trust: What they are trusted with, and why.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str
    trust: str

    @field_validator("name", "trust")
    @classmethod
    def _text(cls, value: str) -> str:
        return _plain(value)


class Deployment(BaseModel):
    """Declared facts about a deployment; what is None or empty is not stated.

    Attributes:
        name: The name of the data product.
        description: What it is.
        intended_use: What the models are for.
        curators: Who publishes the models.
        contact: Whom to ask.
        region: Which region the data describe, or whose law applies.
        sector: The industry.
        data_domain: Which data sets are protected.
        chosen_by: Who chose ε.
        why_epsilon: Why this ε.
        actors: Who handles the data or the models, and the trust put in each.
        unprotected: Quantities that are published without protection.
        preprocessing: What was done to the data before they were protected.
        post_processing: What is done to the models afterwards.
        retention: How long the data and the models are kept.
        access: Who has access to the data and to the models.
        when_spent: What happens when the budget is spent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: str | None = None
    description: str | None = None
    intended_use: str | None = None
    curators: tuple[str, ...] = Field(default=(), max_length=MOST_ENTRIES)
    contact: str | None = None
    region: str | None = None
    sector: str | None = None
    data_domain: str | None = None
    chosen_by: str | None = None
    why_epsilon: str | None = None
    actors: tuple[Actor, ...] = Field(default=(), max_length=MOST_ENTRIES)
    unprotected: tuple[str, ...] = Field(default=(), max_length=MOST_ENTRIES)
    preprocessing: str | None = None
    post_processing: str | None = None
    retention: str | None = None
    access: str | None = None
    when_spent: str | None = None

    @field_validator("curators", "unprotected", "actors", mode="before")
    @classmethod
    def _lists(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @field_validator("*")
    @classmethod
    def _texts(cls, value: Any) -> Any:
        if isinstance(value, str):
            return _plain(value)
        return tuple(_plain(one) if isinstance(one, str) else one for one in value) if value else value

    def to_dict(self) -> dict[str, Any]:
        """The stated fields as plain JSON values.

        Returns:
            The values by key.
        """
        return {key: value for key, value in self.model_dump(mode="json").items() if value}
