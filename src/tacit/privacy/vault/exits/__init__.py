"""The exits of the vault: one file for each mechanism by which private records influence a released value.

Each states its mechanism, its noise and its formal guarantee. What they share: `plans` (noise and accounting event),
`billing` (the charge, before a record is read), `single_release` (noise on a sum that is released once), `grant` (noise
on every gradient of a grant).
"""
