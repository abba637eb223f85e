import sys

import torch
from transformers import GPT2LMHeadModel

model = GPT2LMHeadModel.from_pretrained(sys.argv[1]).eval()
prompt = torch.tensor([[1, 2, 3]])
print(*model.generate(prompt, max_new_tokens=8, do_sample=False)[0].tolist())
