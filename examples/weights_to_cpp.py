import torch
from safetensors.torch import save_file

torch.manual_seed(42)
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
print(f"{model(torch.ones(1, 2)).item():.4f}")
save_file(model.state_dict(), "from_python.safetensors")
