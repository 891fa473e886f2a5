# %% [markdown]
# # Reading a certificate
#
# Every release has a certificate: who is protected, from whom, how well, and on which assumptions. This tutorial makes one
# and reads it line by line. First a small run on public digits, with DP-CL of Desai et al. 2021, whose paper makes a claim
# of its own:

# %%
from pathlib import Path

from tacit import Certificate, run

config = {
    "name": "digits",
    "data": {"source": "digits", "scenario": "permuted", "tasks": 3},
    "learner": {"method": "DPCL", "steps": 40, "batch": 200},
    "budget": {"epsilon": 2.0, "delta": 1e-5},
    "seeds": 1,
}
run(config, "run")
release = sorted(Path("run").glob("seeds/*/releases/*"))[-1]
certificate = Certificate.load(release / "certificate.json")
print(certificate)

# %% [markdown]
# **Two numbers, never merged.** *Claimed* is what the paper states, by its own formula. *Certified* is what the ledger's
# events cost, computed by tacit. They differ, and only the second is a guarantee.

# %%
certified = certificate.claims.certified
print(f"certified: ε = {certified.epsilon:.3f}, δ = {certified.delta:g}, for {certificate.unit.kind}s")
for claim in certificate.claims.paper:
    print(f"claimed:   ε = {claim.epsilon:.3f}, δ = {claim.delta:g}, {claim.paper}: {claim.formula}")

# %% [markdown]
# **What was assumed.** Each assumption is *checked* by tacit, or *declared*: then the guarantee rests on somebody's word.

# %%
for assumption in certificate.assumptions:
    print(f"{assumption.state:9} {assumption.says}")

# %% [markdown]
# **What it does not cover** is listed as well, such as tuning on the same data, or timing:

# %%
for line in certificate.not_accounted:
    print("-", line)

# %% [markdown]
# **What the number means.** With ε and δ, an attacker who knows everything but one record can tell whether it was there
# with a true-positive rate of at most e^ε · FPR + δ:

# %%
import math

for false_alarms in (0.001, 0.01, 0.1):
    most = min(1.0, math.exp(certified.epsilon) * false_alarms + certified.delta)
    print(f"at {false_alarms:.1%} false alarms at most {most:.1%} true positives")

# %% [markdown]
# **It can be checked.** A certificate lists its events, so anyone can price them again; it names the hash of the model and
# of every file beside it. Change one byte of the model, and verification fails:

# %%
# !tacit certificate verify {release}

# %% tags=["fails"]
model = release / "model.safetensors"
data = bytearray(model.read_bytes())
data[-1] ^= 1
model.write_bytes(data)
# !tacit certificate verify {release}

# %% [markdown]
# With `--ledger` every event is compared with the ledger's, and with `--key` the signature is checked:
# [keys and backups](../how-to/keys.md). A certificate of a method without a finite bound says so, in place of a number.
