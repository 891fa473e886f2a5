"""The commands about budgets, ledgers, certificates, keys and policies."""
