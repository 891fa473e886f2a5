"""The picture of `reconstruction`: a victim's record, as it was 'protected', and as an attacker finds it again."""

from pathlib import Path

from tacit.errors import ConfigError
from tacit.experiment.reconstruction import Report
from tacit.words import install


def draw(report: Report, file: Path) -> None:
    """Draw to a PNG file. Every panel has the grey scale of features, −1 to 1."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            f"{file.name} was not drawn because matplotlib is missing; {install('plots')} brings it"
        ) from None
    panels = [
        (f"the victim's record\nlabel {report.label}", report.victim),
        (f"as it is 'protected'\nLaplace noise, scale {report.scale:.0f} a pixel", report.perturbed),
    ]
    for one in report.findings:
        label = "" if one.label is None else f"label {one.label}, "
        panels.append((f"from {one.release}\n{label}rmse {one.rmse:.3g}", one.picture))
    figure = Figure(figsize=(2.5 * len(panels), 3.1), layout="constrained")
    for axes, (title, picture) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        axes.imshow(picture, cmap="gray", vmin=-1, vmax=1, interpolation="nearest")
        axes.set_title(title, fontsize=9.5)
        axes.set_xticks([])
        axes.set_yticks([])
    said = "none" if report.certified is None else f"{report.certified:.3g}"
    figure.suptitle(f"L2DP-ML as published: claimed ε = {report.claimed:.3g}, certified: {said}", fontsize=11)
    try:
        figure.savefig(file, dpi=130)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot write the picture {file}: {error}") from None
