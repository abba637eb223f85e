import torch
from safetensors.torch import load_file

model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
model.load_state_dict(load_file("from_cpp.safetensors"))
print(f"{model(torch.ones(1, 2)).item():.4f}")
