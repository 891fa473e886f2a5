"""What people decide about a ledger: its policy, its budgets, its officers, and what is accepted after a loss.

Guarantee: who, when and why are in the chain. Where the ledger has officers, so are their signatures, and without them
nothing is written.
"""

from collections.abc import Sequence

from tacit.errors import LedgerError
from tacit.privacy.budget import Budget
from tacit.privacy.ledger import gate, making, officers, opening
from tacit.privacy.ledger.book import Book
from tacit.privacy.ledger.officers import Key, Officer
from tacit.privacy.ledger.profile import budget_of
from tacit.privacy.policy import Policy


class Decisions(Book):
    """The decisions. `keys` are the files of private keys of officers, made by `tacit keys signing`."""

    def officers(self) -> tuple[Officer, ...]:
        """Who may sign; none: nothing is authenticated."""
        with self._read() as connection:
            found = officers.registered(connection)
        return tuple(Officer(name=name, public_key=key) for name, key in found.items())

    def add_officer(self, name: str, public_key: Key, *, by: str = "", why: str, keys: Sequence[Key] = ()) -> None:
        """Register an officer. The first signs with their own key; later ones are added by those who are there."""
        if not name.strip() or "," in name:
            raise LedgerError(f"an officer needs a name without commas, got {name!r}")
        key = officers.public_of(public_key)
        with self._write() as txn:
            known = officers.registered(txn.connection)
            if name in known or key in known.values():
                raise LedgerError(f"{name!r} or this key is an officer already; remove the old one first")
            body = {"action": "add", "name": name, "key": key}
            txn.record("officer", officers.signed(txn.connection, "officer", body, keys, by=by, why=why))

    def remove_officer(self, name: str, *, by: str = "", why: str, keys: Sequence[Key] = ()) -> None:
        """Take an officer's right to sign; never of so many that nobody could decide any more."""
        with self._write() as txn:
            known = officers.registered(txn.connection)
            if name not in known:
                raise LedgerError(
                    f"{name!r} is no officer of this ledger; its officers are {', '.join(known) or 'none'}"
                )
            needed = opening.recorded_policy(txn.connection).signatures
            if len(known) <= needed:
                raise LedgerError(
                    f"the policy asks for {needed} signature(s) and there are {len(known)} officer(s); add another "
                    "before removing one"
                )
            body = {"action": "remove", "name": name, "key": known[name]}
            txn.record("officer", officers.signed(txn.connection, "officer", body, keys, by=by, why=why))

    def adopt(self, policy: Policy, *, by: str = "", why: str, keys: Sequence[Key] = ()) -> None:
        """Write a policy to the chain; one whose cap is already exceeded is refused."""
        with self._write() as txn:
            body = officers.signed(txn.connection, "policy", {"policy": policy.to_dict()}, keys, by=by, why=why)
            known = len(officers.registered(txn.connection))
            if policy.signatures > max(1, known):
                raise LedgerError(
                    f"the policy asks for {policy.signatures} signatures and the ledger has {known} officer(s); "
                    "register them first with tacit ledger officers add"
                )
            gate.check_cap(txn.connection, {}, self._prices, policy, ahead=False)
            if policy != opening.recorded_policy(txn.connection):
                txn.record("policy", body)

    def raise_budget(self, stream_id: int, budget: Budget, *, by: str = "", why: str, keys: Sequence[Key] = ()) -> None:
        """Allow the units of a stream to lose more; who, why and the old budget stay in the chain."""
        with self._write() as txn:
            row = making.stream_row(txn.connection, stream_id)
            old = budget_of(row)
            before = {"epsilon": old.epsilon, "delta": old.delta}
            after = {"epsilon": float(budget.epsilon), "delta": float(budget.delta)}
            body = {"stream": stream_id, **after, "from": before}
            whole = officers.signed(txn.connection, "raise", body, keys, by=by, why=why)
            opening.recorded_policy(txn.connection).require_raiser(*whole.get("signatures", {whole["by"]: ""}))
            if (budget.unit, budget.adjacency) != (old.unit, old.adjacency):
                raise LedgerError(f"a raise keeps unit and adjacency ({old}), got {budget}")
            if budget.epsilon < old.epsilon or budget.delta < old.delta or budget == old:
                raise LedgerError(f"stream {row.name!r} has {old}; a raise must be larger, got {budget}")
            if not row.public:
                gate.check_budgets(txn.connection, opening.recorded_policy(txn.connection), {row.name: budget})
            txn.record("raise", whole)
