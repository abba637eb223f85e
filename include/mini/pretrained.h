// SPDX-License-Identifier: MIT
// GPTs from outside, and back: nanoGPT's state_dict, and Hugging Face's GPT-2 directories.
//
// Both hold this library's weights. nanoGPT's names are the same; GPT-2's matrices of the blocks
// stand transposed, (in, out), and its sizes are written down beside, in config.json.
//
// Shapes  C = n_embd, V = vocab_size.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "mini/export.h"
#include "mini/gpt.h"

namespace mini {

/// How `load_nanogpt` makes a model of tensors; the rest is in their shapes.
struct NanoGPTOptions {
  /// The activation, which no tensor tells: nanoGPT's, or "tanh" for a nanoGPT that goes on from
  /// GPT-2 with the latter's own.
  std::string gelu_approximate = "none";
  /// Dropout while training, as in `GPTOptions`.
  double dropout = 0.0;
  /// Takes weights of other dtypes, converted to float32; otherwise another dtype is an error.
  bool convert_dtype = false;
};

/// The GPT that has these tensors, a nanoGPT's `state_dict()`, with n_head heads in each block.
///
/// V, block_size, n_layer, C and bias are read from names and shapes, n_head stands in none. The
/// names may begin with `module.` and `_orig_mod.`; the head may be there as `lm_head.weight`, the
/// token embedding under its own name, `transformer.wte.weight`, or under both with one value. The
/// mask buffers of older versions (`.attn.bias`, `.attn.masked_bias`) are passed over.
///
/// The model is a new one on the CPU, in training mode, its weights copies in float32. LibTorch's
/// generator is left alone.
/// Throws c10::Error that names every tensor that is missing, unexpected, of a wrong shape or of
/// another dtype; and if n_head does not divide C.
MINI_API GPT load_nanogpt(const torch::OrderedDict<std::string, at::Tensor>& tensors,
                          int64_t n_head, const NanoGPTOptions& options = {});
/// The same from a safetensors file, which all errors name.
MINI_API GPT load_nanogpt(const std::filesystem::path& file, int64_t n_head,
                          const NanoGPTOptions& options = {});

/// Writes the safetensors file whose tensors nanoGPT's `load_state_dict` takes as they are, the
/// head's `lm_head.weight` among them. The file comes whole or not at all.
/// Throws c10::Error if it cannot be written.
MINI_API void save_nanogpt(const std::filesystem::path& file, const GPT& model);

/// How `load_gpt2` makes a model; the rest is in its config.json.
struct GPT2Options {
  /// Dropout while training, as in `GPTOptions`. The configuration's three dropouts belong to its
  /// own training, and are passed over.
  double dropout = 0.0;
  /// Takes weights of other dtypes, converted to float32; otherwise another dtype is an error.
  bool convert_dtype = false;
};

/// The GPT in a directory that `save_pretrained` of the Python package `transformers` has written
/// for a GPT-2: config.json and model.safetensors.
///
/// Names may begin with `transformer.` or not; names, head and mask buffers otherwise as in
/// `load_nanogpt`, and so is the model. activation_function may be gelu_new or gelu_pytorch_tanh
/// ("tanh" here), or gelu ("none"). config.json has to say model_type and the sizes; what else it
/// leaves out is as in the package.
///
/// Throws c10::Error, with the file, the field and both values, if a file is missing, if the
/// weights are in shards, if config.json describes something that this GPT cannot do (another
/// model_type or activation_function; n_inner that is not 4 C; layer_norm_epsilon that is not 1e-5;
/// attention scaled otherwise; a head that is not tied; cross attention) or sizes that the weights
/// do not have, and for the weights as `load_nanogpt` does, in its names and shapes.
MINI_API GPT load_gpt2(const std::filesystem::path& directory, const GPT2Options& options = {});

/// Writes config.json and model.safetensors to `directory`, which is made if it is missing. Each
/// file comes whole or not at all, and other files stay.
///
/// `transformers` loads them as a GPT2LMHeadModel that computes the same. Its GPT-2 always has
/// biases: for a model without, they are written as zeros, and loading gives a model with them. Its
/// three dropouts are the model's one. The model has no first and last token (bos_token_id,
/// eos_token_id).
/// Throws c10::Error if a file cannot be written.
MINI_API void save_gpt2(const std::filesystem::path& directory, const GPT& model);

}  // namespace mini
