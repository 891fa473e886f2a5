"""Decisions of people about a ledger: its policy, its budgets and its officers.

Formal guarantees: the chain records who decided, when and why. Where the ledger has officers, a decision is written
only with their signatures.
"""

from collections.abc import Sequence

from tacit.errors import LedgerError
from tacit.privacy.accounting.budget import Budget
from tacit.privacy.ledger import officers, opening
from tacit.privacy.ledger.ledger_file import LedgerFile
from tacit.privacy.ledger.limits import gate
from tacit.privacy.ledger.limits.policy import Policy
from tacit.privacy.ledger.officers import Key, Officer
from tacit.privacy.ledger.storage.lookup import budget_of, stream_row


class Decisions(LedgerFile):
    """Records decisions.

    In every method, `by` names who decides (the signers' names by default), `why` is the reason, and `keys` are files
    of the officers' private keys, made by `tacit keys signing`.
    """

    def officers(self) -> tuple[Officer, ...]:
        """The officers who may sign; without any, decisions are not authenticated.

        Returns:
            The officers, in the order of their registration.
        """
        with self._read() as connection:
            registered = officers.registered(connection)
        return tuple(Officer(name=name, public_key=key) for name, key in registered.items())

    def add_officer(self, name: str, public_key: Key, *, by: str = "", why: str, keys: Sequence[Key] = ()) -> None:
        """Register an officer. The first signs with their own key; later ones are added by the present officers.

        Args:
            name: The officer's name.
            public_key: The file of the officer's public key.
            by: Who decides; the signers' names by default.
            why: The reason.
            keys: Files of the signing officers' private keys.

        Raises:
            LedgerError: The name has a comma, name or key is registered already, or signatures are missing.
        """
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
        """Remove an officer.

        Args:
            name: The officer's name.
            by: Who decides; the signers' names by default.
            why: The reason.
            keys: Files of the signing officers' private keys.

        Raises:
            LedgerError: There is no such officer, too few would remain to sign a decision, or signatures are missing.
        """
        with self._write() as txn:
            known = officers.registered(txn.connection)
            if name not in known:
                raise LedgerError(
                    f"{name!r} is not an officer of this ledger; its officers are {', '.join(known) or 'none'}"
                )
            needed = opening.recorded_policy(txn.connection).signatures
            if len(known) <= needed:
                raise LedgerError(
                    f"the policy requires {needed} signature(s) and there are {len(known)} officer(s); add another "
                    "before removing one"
                )
            body = {"action": "remove", "name": name, "key": known[name]}
            txn.record("officer", officers.signed(txn.connection, "officer", body, keys, by=by, why=why))

    def adopt(self, policy: Policy, *, by: str = "", why: str, keys: Sequence[Key] = ()) -> None:
        """Adopt a policy.

        Args:
            policy: The policy.
            by: Who decides; the signers' names by default.
            why: The reason.
            keys: Files of the signing officers' private keys.

        Raises:
            LedgerError: It requires more signatures than there are officers, its cap protects another unit than a
                stream, or signatures are missing.
            BudgetExceeded: Its cap is already exceeded.
        """
        with self._write() as txn:
            body = officers.signed(txn.connection, "policy", {"policy": policy.to_dict()}, keys, by=by, why=why)
            known = len(officers.registered(txn.connection))
            if policy.signatures > max(1, known):
                raise LedgerError(
                    f"the policy requires {policy.signatures} signatures and the ledger has {known} officer(s); "
                    "register them first with tacit ledger officers add"
                )
            gate.check_cap(txn.connection, {}, self._prices, policy, ahead=False)
            if policy != opening.recorded_policy(txn.connection):
                txn.record("policy", body)

    def raise_budget(self, stream_id: int, budget: Budget, *, by: str = "", why: str, keys: Sequence[Key] = ()) -> None:
        """Raise the budget of a stream.

        Args:
            stream_id: The stream.
            budget: The new budget.
            by: Who decides; the signers' names by default.
            why: The reason.
            keys: Files of the signing officers' private keys.

        Raises:
            PolicyError: The policy does not allow this person to raise budgets.
            LedgerError: The budget has another unit or adjacency, or is not larger, or signatures are missing.
            BudgetExceeded: It does not fit the policy's unit_cap.
        """
        with self._write() as txn:
            row = stream_row(txn.connection, stream_id)
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
