"""The stand-ins for PyTorch's compiler: what they take, and when the real one comes."""

import subprocess
import sys

SCRIPT = """\
import os
import sys
import torch
from layerdag.capturing.fake_tensors import RememberingFakeMode
from layerdag.cli.compiler import postpone_compiler

postpone_compiler()
with RememberingFakeMode():
    weight = torch.nn.Parameter(torch.ones(2) * torch.tensor(3.0))
    optimizer = torch.optim.AdamW([weight])
    weight.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
assert torch._dynamo.disable(recursive=False)(print) is torch._dynamo.disable(print) is print
for asked in sys.argv[1:]:
    if os.fork():
        assert os.wait()[1] == 0
        continue
    found = ["torch._dynamo.eval_frame" in sys.modules]
    exec(asked)
    found.append(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
    found.append(torch._dynamo is sys.modules["torch._dynamo"])
    found.append(torch._inductor.__spec__.origin == torch._inductor.__file__)
    print(*found, callable(torch._dynamo.optimize), flush=True)
    os._exit(0)
"""
ASKED = (
    "torch._dynamo.optimize",
    "from torch._dynamo.source import AttrSource",
    "import torch._inductor.utils",
)


def test_fake_steps_do_without_the_compiler_and_whoever_asks_for_it_gets_all_of_it():
    """Each asks in a copy of one process, which has done a step."""
    words = [sys.executable, "-c", SCRIPT, *ASKED]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["False 2.0 True True True"] * len(ASKED), done.stderr
