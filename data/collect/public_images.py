"""Image classifiers of timm and torchvision by their classes, with widths and depths of one's own.

Every entry of ``CLASSIFIERS`` returns a module for a structure and for the sizes of a recording.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from torch import nn

Structure = Mapping[str, Any]

_ACT = {"gelu": nn.GELU, "relu": nn.ReLU, "silu": nn.SiLU}


def _act(s: Structure) -> type[nn.Module]:
    return _ACT.get(s["activation"], nn.GELU)


def _in_place(s: Structure) -> type[nn.Module]:
    return nn.SiLU if s["activation"] in ("silu", "gelu") else nn.ReLU


def _on(s: Structure, at: int) -> bool:
    """Return one of the drawn switches by its number."""
    return bool(list(s["switches"].values())[at])


def _depths(s: Structure) -> tuple[int, ...]:
    """Return blocks of four stages, between one and three each."""
    return tuple(1 + (s["depth"] + 2 * _on(s, at) + at) % (2 + _on(s, 4)) for at in range(4))


def _four(width: int) -> tuple[int, ...]:
    return (width, 2 * width, 4 * width, 8 * width)


def _vit(s: Structure, z: Any) -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=z.image, patch_size=16, num_classes=z.labels, embed_dim=z.hidden, depth=s["depth"],
        num_heads=z.heads, mlp_ratio=2.0 if _on(s, 0) else 4.0, qkv_bias=_on(s, 1),
        qk_norm=_on(s, 2), init_values=1e-5 if _on(s, 3) else None, pre_norm=_on(s, 4),
        global_pool="avg" if _on(s, 5) else "token", act_layer=_act(s),
        reg_tokens=4 if _on(s, 6) else 0, proj_drop_rate=0.1 if s["dropout"] else 0.0,
    )  # fmt: skip


def _eva(s: Structure, z: Any) -> nn.Module:
    from timm.models.eva import Eva

    return Eva(
        img_size=z.image, patch_size=16, num_classes=z.labels, embed_dim=z.hidden, depth=s["depth"],
        num_heads=z.heads, mlp_ratio=2.0 if _on(s, 0) else 4.0, qkv_fused=_on(s, 1),
        qk_norm=_on(s, 2), swiglu_mlp=_on(s, 3), scale_mlp=_on(s, 4), use_rot_pos_emb=_on(s, 5),
        init_values=1e-5 if _on(s, 6) else None,
    )  # fmt: skip


def _cait(s: Structure, z: Any) -> nn.Module:
    from timm.models.cait import Cait

    return Cait(
        img_size=z.image, num_classes=z.labels, embed_dim=z.hidden, depth=s["depth"],
        num_heads=z.heads, mlp_ratio=2.0 if _on(s, 0) else 4.0, qkv_bias=_on(s, 1),
        depth_token_only=1 + _on(s, 2), act_layer=_act(s),
    )  # fmt: skip


def _mixer(s: Structure, z: Any) -> nn.Module:
    from timm.models.mlp_mixer import MixerBlock, MlpMixer, ResBlock

    block = MixerBlock if _on(s, 0) else ResBlock
    return MlpMixer(
        img_size=z.image, num_classes=z.labels, embed_dim=z.hidden, num_blocks=s["depth"],
        block_layer=block, act_layer=_act(s),
        mlp_ratio=4 if block is not MixerBlock else (0.5, 4.0), stem_norm=_on(s, 1),
        proj_drop_rate=0.1 if s["dropout"] else 0.0,
    )  # fmt: skip


def _convnext(s: Structure, z: Any) -> nn.Module:
    from timm.models.convnext import ConvNeXt

    return ConvNeXt(
        num_classes=z.labels, depths=_depths(s), dims=_four(z.head), conv_mlp=_on(s, 5),
        ls_init_value=1e-6 if _on(s, 6) else None, use_grn=_on(s, 7), head_norm_first=_on(s, 8),
        act_layer=s["activation"] if s["activation"] in _ACT else "gelu",
        stem_type="overlap" if _on(s, 9) else "patch",
    )  # fmt: skip


def _resnet(s: Structure, z: Any) -> nn.Module:
    from timm.models.resnet import BasicBlock, Bottleneck, ResNet

    attention = (None, "se", "eca", "ese")[s["depth"] % 4]
    return ResNet(
        Bottleneck if _on(s, 5) else BasicBlock, _depths(s), num_classes=z.labels,
        channels=_four(2 * z.head), stem_type="deep" if _on(s, 6) else "", stem_width=z.head,
        avg_down=_on(s, 7), act_layer=_in_place(s), block_args={"attn_layer": attention},
        drop_rate=0.1 if s["dropout"] else 0.0,
    )  # fmt: skip


def _swin(s: Structure, z: Any) -> nn.Module:
    from timm.models.swin_transformer import SwinTransformer

    return SwinTransformer(
        img_size=2 * z.image, num_classes=z.labels, embed_dim=z.hidden,
        depths=(2, 2)[: 1 + _on(s, 0)],
        num_heads=(z.heads, 2 * z.heads)[: 1 + _on(s, 0)], window_size=4, qkv_bias=_on(s, 1),
        mlp_ratio=2.0 if _on(s, 2) else 4.0, drop_path_rate=0.0,
        proj_drop_rate=0.1 if s["dropout"] else 0.0,
    )  # fmt: skip


def _metaformer(s: Structure, z: Any) -> nn.Module:
    from timm.models.metaformer import MetaFormer, Pooling, SepConv, SquaredReLU, StarReLU

    mixers = [Pooling if _on(s, 5) else SepConv] * 2 + [Pooling if _on(s, 6) else SepConv] * 2
    return MetaFormer(
        num_classes=z.labels, depths=_depths(s), dims=_four(32 * (z.head // 8)),
        token_mixers=mixers,
        mlp_act=(StarReLU, SquaredReLU, nn.GELU)[s["depth"] % 3], mlp_bias=_on(s, 7),
        layer_scale_init_values=1e-5 if _on(s, 8) else None,
    )  # fmt: skip


def _convmixer(s: Structure, z: Any) -> nn.Module:
    from timm.models.convmixer import ConvMixer

    return ConvMixer(
        z.hidden, s["depth"], kernel_size=(5, 7, 9)[_on(s, 0) + _on(s, 1)], patch_size=8,
        num_classes=z.labels, act_layer=_act(s), drop_rate=0.1 if s["dropout"] else 0.0,
    )  # fmt: skip


def _inception_next(s: Structure, z: Any) -> nn.Module:
    from timm.models.inception_next import MetaNeXt

    return MetaNeXt(
        num_classes=z.labels, depths=_depths(s), dims=_four(z.head), act_layer=_act(s),
        ls_init_value=1e-6 if _on(s, 5) else None, mlp_ratios=(4, 4, 4, 3) if _on(s, 6) else 4,
    )  # fmt: skip


def _fasternet(s: Structure, z: Any) -> nn.Module:
    from timm.models.fasternet import FasterNet

    return FasterNet(
        num_classes=z.labels, embed_dim=z.head, depths=_depths(s), drop_path_rate=0.0,
        mlp_ratio=2.0 if _on(s, 5) else 3.0, act_layer=_act(s), feature_dim=z.ffn,
        layer_scale_init_value=1e-5 if _on(s, 6) else 0.0, n_div=4 if _on(s, 7) else 2,
    )  # fmt: skip


def _starnet(s: Structure, z: Any) -> nn.Module:
    from timm.models.starnet import StarNet

    return StarNet(
        base_dim=z.head, depths=list(_depths(s)), mlp_ratio=3 + _on(s, 5), act_layer=_act(s),
        num_classes=z.labels,
    )  # fmt: skip


def _pvt(s: Structure, z: Any) -> nn.Module:
    from timm.models.pvt_v2 import PyramidVisionTransformerV2

    return PyramidVisionTransformerV2(
        num_classes=z.labels, depths=_depths(s), embed_dims=_four(2 * z.head),
        num_heads=(1, 2, 4, 8), mlp_ratios=(4, 4, 4, 4) if _on(s, 5) else (8, 8, 4, 4),
        qkv_bias=_on(s, 6), linear=_on(s, 7), proj_drop_rate=0.1 if s["dropout"] else 0.0,
    )  # fmt: skip


def _focalnet(s: Structure, z: Any) -> nn.Module:
    from timm.models.focalnet import FocalNet

    return FocalNet(
        num_classes=z.labels, embed_dim=z.head, depths=_depths(s), drop_path_rate=0.0,
        mlp_ratio=2.0 if _on(s, 5) else 4.0, use_overlap_down=_on(s, 6), use_post_norm=_on(s, 7),
        normalize_modulator=_on(s, 8), layerscale_value=1e-4 if _on(s, 9) else None,
    )  # fmt: skip


def _densenet(s: Structure, z: Any) -> nn.Module:
    from torchvision.models import DenseNet

    return DenseNet(
        growth_rate=z.head, block_config=tuple(1 + n for n in _depths(s)),
        num_init_features=2 * z.head, bn_size=4 if _on(s, 5) else 2,
        drop_rate=0.1 if s["dropout"] else 0.0, num_classes=z.labels,
    )  # fmt: skip


def _vgg(s: Structure, z: Any) -> nn.Module:
    from torchvision.models.vgg import VGG, make_layers

    plan: list[Any] = []
    for width, times in zip(_four(z.head), _depths(s), strict=True):
        plan += [width] * times + ["M"]
    model = VGG(make_layers(plan, batch_norm=_on(s, 5)), num_classes=z.labels)
    model.avgpool = nn.AdaptiveAvgPool2d(2)
    model.classifier = nn.Sequential(
        nn.Linear(32 * z.head, z.ffn), nn.ReLU(True), nn.Dropout(), nn.Linear(z.ffn, z.labels)
    )
    return model


def _mobilenet(s: Structure, z: Any) -> nn.Module:
    from torchvision.models import MobileNetV2

    rows = [
        [1 if at == 0 else (6, 4, 3)[at % 3], z.head * (at + 2), times, 1 if at == 0 else 2]
        for at, times in enumerate(_depths(s))
    ]
    return MobileNetV2(z.labels, inverted_residual_setting=rows, dropout=0.1 * s["dropout"])


def _shufflenet(s: Structure, z: Any) -> nn.Module:
    from torchvision.models import ShuffleNetV2

    c = 2 * z.head
    return ShuffleNetV2([1 + n for n in _depths(s)[:3]], [24, c, 2 * c, 4 * c, 8 * c], z.labels)


def _regnet(s: Structure, z: Any) -> nn.Module:
    from torchvision.models.regnet import BlockParams, RegNet

    widths = list(_four(z.head))
    params = BlockParams(
        list(_depths(s)), widths, [z.head] * 4, [1.0] * 4, [2] * 4, 0.25 if _on(s, 5) else None
    )
    norm = partial(nn.BatchNorm2d, eps=1e-5)
    return RegNet(params, z.labels, stem_width=z.head, norm_layer=norm, activation=_in_place(s))


CLASSIFIERS: Mapping[str, Callable[[Structure, Any], nn.Module]] = {
    "timm-vit": _vit,
    "timm-eva": _eva,
    "timm-cait": _cait,
    "timm-mixer": _mixer,
    "timm-convnext": _convnext,
    "timm-resnet": _resnet,
    "timm-swin": _swin,
    "timm-metaformer": _metaformer,
    "timm-convmixer": _convmixer,
    "timm-inception-next": _inception_next,
    "timm-fasternet": _fasternet,
    "timm-starnet": _starnet,
    "timm-pvt": _pvt,
    "timm-focalnet": _focalnet,
    "torchvision-densenet": _densenet,
    "torchvision-vgg": _vgg,
    "torchvision-mobilenet": _mobilenet,
    "torchvision-shufflenet": _shufflenet,
    "torchvision-regnet": _regnet,
}
