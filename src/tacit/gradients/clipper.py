"""The sum of clipped per-example gradients, in one backward pass.

Formal guarantees
  * A unit (an example, or a group of examples) moves the total by at most `Clipper.sensitivity` in the L2 norm, after
    every rounding: the row whose norm is computed is the row that is added, and totals are exact.
  * A unit whose gradient is not finite adds nothing, silently.

Conditions: the model treats each example by itself, which `check_independent` tests.

Method: (1) a forward pass that records the inputs of the trained layers; (2) one backward pass to the *outputs* of
these layers, without weight gradients; (3) per-example norms from inputs and output gradients; (4) one weighted product
per layer.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils._pytree import tree_map

from tacit.errors import PlanError, UnsupportedModel
from tacit.gradients.clip import ClipRule, as_rule
from tacit.gradients.exact import ROOM, SLACK, ExactSum
from tacit.gradients.generic import generic, not_first
from tacit.gradients.layers import rule_for
from tacit.gradients.layout import Layout
from tacit.gradients.record_inputs import Loss, Site, Use, differentiate, record
from tacit.gradients.rows import Dense, Rows, Units
from tacit.gradients.validate import mixers, refuse_mixing
from tacit.gradients.verify import RANDOM, agrees, random_parameters

Judge = Callable[[Tensor], Tensor]
"""From the norms of all units of a batch, before the clip, to a factor of 0 or 1 for each."""

SMALL, FEW = 1 << 14, 4
"""From `FEW` parameters on, those of at most `SMALL` numbers are added in one operation."""
_TOGETHER = ""


class Clipper:
    """Clipped sums of one model and one loss, prepared once and used many times.

    The set of trained parameters is that of the moment of construction. `loss(output, y)` gives one value per example.
    The first batch, or the rows given to `verify`, is compared with plain autograd: a layer whose hook does not fire
    raises UnsupportedModel.
    """

    def __init__(self, model: nn.Module, loss: Loss, clip: float | ClipRule) -> None:
        self.model, self.loss = model, loss
        self.layout = Layout.of(model)
        self.rule = as_rule(clip).bind(self.layout.names)
        self._sites = find_sites(model, self.layout)
        self._rules = {site.name: rule_for(site.module) for site in self._sites}
        self._mixers = mixers(model)
        self._roles: dict[str, list[bool]] = {}
        self._verified = False
        refuse_mixing(self._mixers)

    @property
    def names(self) -> tuple[str, ...]:
        """The trained parameters, in the order of the flat buffer."""
        return self.layout.names

    @property
    def sensitivity(self) -> float:
        """The most that one unit can move the sum, in the L2 norm."""
        return self.rule.sensitivity

    def total(self) -> ExactSum:
        """An empty total, on the model's device."""
        return ExactSum(self.layout.total, self.sensitivity, self._device())

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """The parts of a flat vector of all parameters, by name."""
        return dict(zip(self.layout.names, self.layout.views(flat), strict=True))

    def sum(
        self,
        x: Tensor,
        y: Tensor,
        groups: Tensor | None = None,
        *,
        num_groups: int | None = None,
        judge: Judge | None = None,
    ) -> dict[str, Tensor]:
        """The clipped sum of one batch by parameter name, in the precision of the parameters.

        Gradients are rounded to about 2⁻¹⁹ of the clip, so a clip far above their norms loses precision.
        """
        total = self.total()
        self.add(total, x, y, groups, num_groups=num_groups, judge=judge)
        return self.views(total.values().to(self.layout.dtype))

    def add(
        self,
        total: ExactSum,
        x: Tensor,
        y: Tensor,
        groups: Tensor | None = None,
        *,
        num_groups: int | None = None,
        filled: int = 0,
        judge: Judge | None = None,
    ) -> None:
        """Add the clipped gradients of a batch to `total`.

        Examples with the same number in `groups` are one unit: their gradients are added before the clip. The last
        `filled` rows are padding: they go through the model, their loss is ignored, and they add nothing. `judge`
        selects the examples that take part; the gradients of the others are computed too and multiplied by 0.
        """
        if x.shape[0] == 0:
            return
        refuse_mixing(self._mixers)
        units = _units(groups, num_groups, x)
        if not self._verified:
            self._verified = self._compared(x[: len(x) - filled], y[: len(y) - filled])
        losses, uses = record(self._sites, self.model, without(self.loss, filled), x, y)
        differentiate(losses, uses)
        with torch.no_grad():
            rows = self.rows(uses, x.shape[0])
            with exact(x.device):
                if units is None:
                    self._add(rows, len(x), total, judge)
                else:
                    self._add({n: r.by_unit(units) for n, r in rows.items()}, units.count, total, judge)

    def verify(self, x: Tensor, y: Tensor) -> None:
        """Compares gradients with autograd on these rows, and on no others: batches that follow are not compared.

        Whether the comparison raises depends on the rows. The vault gives synthetic ones, so that no private record
        decides it.

        Args:
            x: Public inputs, at least two.
            y: Their targets.

        Raises:
            UnsupportedModel: If a gradient is not what autograd computes, or no loss is finite.
        """
        if not self._compared(x, y) and not self._compared_at_random(x, y):
            raise UnsupportedModel(
                "the loss is not finite on synthetic examples, so that the gradients cannot be checked; use a model "
                "and a loss that are finite for ordinary numbers"
            )
        self._verified = True

    def _compared(self, x: Tensor, y: Tensor) -> bool:
        """Compare with autograd; False if there are too few finite examples to tell. Where some gradient vanishes, as
        under a head that starts at zero, it is compared under random parameters."""
        found = agrees(self.model, self.loss, x, y, self._sites, self.rows)
        if found is None:
            self._compared_at_random(x, y)
        return found is not False

    def _compared_at_random(self, x: Tensor, y: Tensor) -> bool:
        found: list[bool | None] = []
        for std in RANDOM:
            if True not in found:
                with random_parameters(self.model, std):
                    found.append(agrees(self.model, self.loss, x, y, self._sites, self.rows))
        return any(one is not False for one in found)

    def rows(self, uses: list[Use], examples: int) -> dict[str, Rows]:
        """Per-example gradients of each parameter that took part, in factored form where it is used once."""
        parts: dict[str, list[Rows]] = {}
        for use in uses:
            if any(g is not None for g in use.gradients):
                for local, rows in self._use_rows(use, examples).items():
                    parts.setdefault(use.site.owned[local], []).append(rows)
        # Used twice or tied: the cross terms count, so the gradients are added before the norm is taken.
        return {name: some[0] if len(some) == 1 else added(some, examples) for name, some in parts.items()}

    def _use_rows(self, use: Use, examples: int) -> dict[str, Rows]:
        use.check_inputs()
        rule = self._rules[use.site.name]
        if rule is None:
            return generic(use, examples, self._roles)
        a = (use.args[0] if use.args else use.kwargs["input"]).detach()
        b = use.gradients[0]
        assert b is not None
        if a.dim() < 1 or a.shape[0] != examples or b.shape[0] != examples:
            raise not_first(use)
        with exact(a.device):
            return rule(use.site.module, a, b, use.site.owned)

    def _add(self, rows: Mapping[str, Rows], count: int, total: ExactSum, judge: Judge | None) -> None:
        """Norms, weights, weighted sums."""
        if not rows:
            return
        small = self._small(rows, count)
        if small:
            rows = {name: found for name, found in rows.items() if name not in small} | {_TOGETHER: together(small)}
        weights = self._weights(rows, judge)
        # Masking costs a copy of every factor, so first ask whether there is anything to mask; with a judge it is done
        # always, or the time would tell whether someone is out.
        distinct = list({id(w): w for w in weights.values()}.values())
        lowest = distinct[0] if len(distinct) == 1 else torch.stack(distinct).amin(0)
        fine = None if judge is None and float(lowest.min()) > 0.0 else lowest > 0.0
        views = dict(zip(self.layout.names, total.views(self.layout.shapes), strict=True))
        for name, found in rows.items():
            kept = found if fine is None else found.keep(fine)
            if name != _TOGETHER:
                kept.add_to(total, views[name], weights[name])
                continue
            parts = [views[one].view(-1) for one in small]
            sums = total.flat.new_zeros(sum(len(part) for part in parts))
            kept.add_to(total, sums, weights[name])
            torch._foreach_add_(parts, list(torch.split(sums, [len(part) for part in parts])))

    def _small(self, rows: Mapping[str, Rows], count: int) -> dict[str, Dense]:
        """Rows so short that what costs is the number of operations: those of scales, shifts and biases. Of more units
        than a total has room for at a time, none."""
        if not self.rule.whole or count > ROOM:
            return {}
        found = {n: r for n, r in rows.items() if type(r) is Dense and r.rows[0].numel() <= SMALL}
        return found if len(found) >= FEW else {}

    def _weights(self, rows: Mapping[str, Rows], judge: Judge | None) -> dict[str, Tensor]:
        """The weight of every unit by parameter; a parameter without rows has norm zero."""
        names = tuple(rows) if self.rule.whole else self.layout.names
        squared = {name: found.squared_norms() for name, found in rows.items()}
        some = next(iter(squared.values()))
        if len(squared) < len(names):
            zero = torch.zeros_like(some)
            squared = {name: squared.get(name, zero) for name in names}
        slack = SLACK + sum(found.rounding for found in rows.values())
        weights = self.rule.weights([squared[name] for name in names], slack)
        if judge is not None:
            factor = judge(torch.stack([squared[name] for name in names]).sum(0).sqrt()).to(some)
            weights = [weight * factor for weight in weights]
        return dict(zip(names, weights, strict=True))

    def _device(self) -> torch.device:
        return next(p.device for p in self.model.parameters() if p.requires_grad)


def without(loss: Loss, filled: int) -> Loss:
    """The loss of a batch whose last rows are no examples: zero for these. Outputs without a row for each example stay
    as they are."""

    def of_examples(output: Any, y: Tensor) -> Tensor:
        def cut(t: Any) -> Any:
            return t[:-filled] if isinstance(t, Tensor) and t.dim() and len(t) == len(y) else t

        real = tree_map(cut, output)
        return nn.functional.pad(loss(real, y[:-filled]), (0, filled))

    return of_examples if filled else loss


def together(rows: Mapping[str, Dense]) -> Dense:
    """The rows of several parameters side by side."""
    return Dense(torch.cat([found.rows.reshape(len(found.rows), -1) for found in rows.values()], 1))


def added(parts: list[Rows], examples: int) -> Rows:
    """One parameter's rows from several uses, held as they are."""
    total = parts[0].dense().reshape(examples, -1).clone()
    for rows in parts[1:]:
        total += rows.dense().reshape(examples, -1)
    return Dense(total)


def exact(device: torch.device) -> AbstractContextManager[object]:
    """Autocast off: rows are made in float32 at least."""
    on = torch.is_autocast_enabled(device.type)
    return torch.autocast(device.type, enabled=False) if on else nullcontext()


def clipped_sum(
    model: nn.Module,
    loss: Loss,
    x: Tensor,
    y: Tensor,
    *,
    clip: float | ClipRule,
    groups: Tensor | None = None,
    num_groups: int | None = None,
) -> dict[str, Tensor]:
    """The sum over units of their clipped gradients, by parameter name.

    Args:
        model: The model; its trained parameters are those with `requires_grad`.
        loss: `loss(outputs, targets)`, with one value for each example.
        x: Inputs, one row for each example.
        y: Their targets.
        clip: The largest norm of a unit's gradient, or a rule with a clip for each layer.
        groups: The number of each example's unit, where a unit has several examples. By default each example is one.
        num_groups: The number of units; by default the largest number in `groups` plus one.

    Returns:
        From parameter name to the clipped sum.

    Raises:
        UnsupportedModel: If the model cannot be clipped exactly.
        PlanError: If `groups` does not give one unit's number for each example.
    """
    return Clipper(model, loss, clip).sum(x, y, groups, num_groups=num_groups)


def find_sites(model: nn.Module, layout: Layout) -> list[Site]:
    """Every module with trained parameters; some own those of their children, whose forward is not called."""
    by_id = {id(p): name for name, p in model.named_parameters()}
    trained = set(layout.names)
    sites: list[Site] = []
    inside: set[int] = set()
    for name, module in model.named_modules():
        if id(module) in inside:
            continue
        whole = isinstance(module, nn.MultiheadAttention) or parametrize.is_parametrized(module)
        if whole:
            inside.update(id(m) for m in module.modules())
        own = module.named_parameters(recurse=whole, remove_duplicate=False)
        owned = {local: by_id[id(p)] for local, p in own if by_id[id(p)] in trained}
        if owned:
            sites.append(Site(name=name or "(root)", module=module, owned=owned))
    return sites


def _units(groups: Tensor | None, num_groups: int | None, x: Tensor) -> Units | None:
    if groups is None:
        return None
    if groups.shape != x.shape[:1] or groups.is_floating_point():
        raise PlanError(f"groups must be one integer for each example, got {groups.dtype}; number the groups from 0")
    low, high = (int(v) for v in groups.aminmax())
    count = high + 1 if num_groups is None else num_groups
    if low < 0 or high >= count:
        raise PlanError("groups must be in 0..num_groups-1; number the groups from 0")
    return Units(index=groups.long(), count=count)
