"""The stand-ins for PyTorch's compiler: what they take, and when the real one comes."""

import subprocess
import sys

import pytest

SCRIPT = """\
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
print("torch._dynamo.eval_frame" in sys.modules)
exec(sys.argv[1])
print(torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)).item())
print(torch._dynamo is sys.modules["torch._dynamo"], callable(torch._dynamo.optimize))
"""


@pytest.mark.parametrize(
    "asked",
    [
        "torch._dynamo.optimize",
        "from torch._dynamo.source import AttrSource",
        "import torch._inductor.utils",
    ],
)
def test_fake_steps_do_without_the_compiler_and_whoever_asks_for_it_gets_all_of_it(asked):
    words = [sys.executable, "-c", SCRIPT, asked]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "2.0", "True", "True"], done.stderr
