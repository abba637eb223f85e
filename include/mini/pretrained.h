// SPDX-License-Identifier: MIT
// Loads and saves pretrained GPTs: nanoGPT's state_dict and Hugging Face's GPT-2 directories.
//
// nanoGPT's tensors have the same names and shapes as this library's. GPT-2 stores the weight
// matrices of its blocks transposed, as (in, out), and its sizes in config.json.
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

/// Options for `load_nanogpt`: settings that the tensors do not record, and dtype conversion.
struct NanoGPTOptions {
  /// "none" or "tanh", as in `MlpOptions`; the tensors do not record it. nanoGPT uses "none". Pass
  /// "tanh" for a model that was fine-tuned from GPT-2 with GPT-2's activation.
  std::string gelu_approximate = "none";
  /// Dropout while training, as in `GPTOptions`.
  double dropout = 0.0;
  /// Convert weights of another dtype to float32. If false, another dtype is an error.
  bool convert_dtype = false;
};

/// Makes a GPT with n_head heads per block from the `state_dict()` of a nanoGPT model.
///
/// V, block_size, n_layer, C and bias are read from names and shapes; n_head is not recorded there.
/// The prefixes `module.` and `_orig_mod.` are removed from names. The token embedding may be named
/// `transformer.wte.weight`, `lm_head.weight`, or both with equal values. The mask buffers of older
/// versions (`.attn.bias`, `.attn.masked_bias`) are ignored.
///
/// The model is on the CPU and in training mode. Its weights are float32 copies of the tensors.
/// LibTorch's global generator is not used.
/// Throws c10::Error if n_head does not divide C or an option is out of range, and if a tensor is
/// missing, unexpected, or has a wrong shape or dtype. One error lists every such tensor, unless an
/// embedding is missing: that is reported first, alone.
MINI_API GPT load_nanogpt(const torch::OrderedDict<std::string, at::Tensor>& tensors,
                          int64_t n_head, const NanoGPTOptions& options = {});
/// Makes a GPT from the safetensors file of a nanoGPT model, as above. Every error names the file.
MINI_API GPT load_nanogpt(const std::filesystem::path& file, int64_t n_head,
                          const NanoGPTOptions& options = {});

/// Writes a safetensors file that nanoGPT's `load_state_dict` accepts unchanged. The file contains
/// the tied weight under both names, `transformer.wte.weight` and `lm_head.weight`.
///
/// Throws c10::Error if the scale of the model is not 1 / sqrt(hs), which nanoGPT always uses. If
/// writing fails, c10::Error is thrown. After an error, an existing file is unchanged.
MINI_API void save_nanogpt(const std::filesystem::path& file, const GPT& model);

/// Options for `load_gpt2`: settings that are not taken from config.json, and dtype conversion.
struct GPT2Options {
  /// Dropout while training, as in `GPTOptions`. The three dropouts in config.json are ignored:
  /// they describe how the model was trained.
  double dropout = 0.0;
  /// Convert weights of another dtype to float32. If false, another dtype is an error.
  bool convert_dtype = false;
};

/// Makes a GPT from a directory that `save_pretrained` of the Python package `transformers` wrote
/// for a GPT-2. The directory must contain config.json and model.safetensors.
///
/// The prefix `transformer.` is optional. Other prefixes, `lm_head.weight` and mask buffers are
/// handled as in `load_nanogpt`. The model is on the CPU, in training mode, and its weights are
/// float32 copies.
///
/// config.json must contain model_type, vocab_size, n_positions, n_embd, n_layer and n_head. Other
/// missing fields take the defaults of `transformers`. activation_function may be gelu_new or
/// gelu_pytorch_tanh, which are "tanh" here, or gelu, which is "none".
///
/// Throws c10::Error in the cases below. The message names the path and, for a field of
/// config.json, the expected and the actual value.
/// - a file is missing, or the weights are in shards;
/// - config.json describes a model that `GPT` cannot compute: another model_type or
///   activation_function, n_inner other than 4 C, layer_norm_epsilon other than 1e-5, another
///   scaling of the scores, an untied head, or cross-attention;
/// - sizes in config.json and in the weights differ;
/// - a tensor is missing, unexpected, or has a wrong shape or dtype, as for `load_nanogpt`. The
///   error shows this library's names and shapes.
MINI_API GPT load_gpt2(const std::filesystem::path& directory, const GPT2Options& options = {});

/// Writes config.json and model.safetensors to `directory`, and creates the directory if it is
/// missing. Other files in the directory are unchanged.
///
/// `transformers` loads the directory as a GPT2LMHeadModel that computes the same logits. GPT-2 in
/// `transformers` always has biases. If the model has none, zeros are written, and `load_gpt2` then
/// returns a model with biases. embd_pdrop, attn_pdrop and resid_pdrop are all set to the dropout
/// of the model. scale_attn_weights is false if the scale of the model is 1. bos_token_id and
/// eos_token_id are null.
///
/// Throws c10::Error if the scale is neither 1 / sqrt(hs) nor 1, because config.json cannot express
/// another. If writing a file fails, c10::Error is thrown and the existing file of that name is
/// unchanged.
MINI_API void save_gpt2(const std::filesystem::path& directory, const GPT& model);

}  // namespace mini
