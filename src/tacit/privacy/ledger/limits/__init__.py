"""The limits on charges: prices of event lists, composition over tasks, the gate and the policy."""
