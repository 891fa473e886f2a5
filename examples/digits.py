"""A private model of handwritten digits, and the certificate that goes with it: `make demo`.

The data is public (it ships with scikit-learn), so the ledger may be thrown away; for your own data, give
`Ledger` a path and keep it: it belongs to the data.
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from tacit import Budget, Declared, GradientPlan, Ledger, Vault
from tacit.gradients.losses import cross_entropy


def main() -> None:
    images, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split((images / 16).astype("float32"), labels, test_size=0.2, random_state=0)

    budget = Budget(epsilon=2.0, delta=1e-4)
    plan = GradientPlan.for_budget(budget, rate=0.5, steps=100)
    print(f"plan    {plan.steps} steps, rate {plan.rate}, noise {plan.noise:.3f}: what {budget} allows")

    with Ledger.throwaway() as ledger:
        vault = Vault(ledger)
        declared = Declared(stream="digits", task="2026-01", budget=budget, size=1400, labels=range(10), public=True)
        block = vault.admit((x, y), declared)

        torch.manual_seed(0)
        model = torch.nn.Linear(64, 10)
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.5)
        grant = vault.grant(block, plan, model, cross_entropy)
        for _ in grant:
            grant.backward()  # a clipped, noisy gradient in .grad; the ledger was charged before it was computed
            optimizer.step()

        with torch.no_grad():
            accuracy = (model(torch.from_numpy(x_test)).argmax(1).numpy() == y_test).mean()
        print(f"model   {accuracy:.1%} of {len(y_test)} test digits right\n")
        print(vault.certificate(block, method="DP-SGD, softmax regression"))


if __name__ == "__main__":
    main()
