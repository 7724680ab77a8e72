"""In which precision the matrix products of training are made."""

from contextlib import AbstractContextManager, nullcontext

import torch

# x86 instructions for bfloat16, as torch.cpu.get_capabilities() names them; ARM is not measured.
_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")


def matrix_precision(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which losses are computed: autocast to bfloat16, or nothing.

    Only matrix products lose digits; sums over many rows stay in single precision
    (``model.layers.single``), and so do weights and gradients.

    Args:
        precision: One of ``settings.PRECISIONS``; "auto" is bfloat16 where the device has
            instructions for it, which pays with micro-batches of thousands of nodes, else float32.
        device: Of the model.
    """
    low = precision == "bfloat16" or (precision == "auto" and has_bfloat16(device))
    return torch.autocast(device.type, torch.bfloat16) if low else nullcontext()


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the device multiplies matrices of bfloat16 faster than of float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Not there in older torch, where emulation would be slower than float32.
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(bool(capabilities.get(name)) for name in _INSTRUCTIONS)
