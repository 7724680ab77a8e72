"""A training script as a user may have one; it knows nothing of layerdag."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(
        model(torch.randn(32, 64)), torch.randint(0, 10, (32,))
    )
    loss.backward()
    optimizer.step()
