import torch
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(42)
sizes = {"vocab_size": 101, "n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 4}
config = GPT2Config(**sizes, initializer_range=0.3, bos_token_id=None, eos_token_id=None)
model = GPT2LMHeadModel(config).eval()
model.save_pretrained("from_python")

prompt = torch.tensor([[1, 2, 3]])
print(*model.generate(prompt, max_new_tokens=8, do_sample=False)[0].tolist())
