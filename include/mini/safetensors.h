// Tensors in files that Python reads and writes: the safetensors format.
// SPDX-License-Identifier: MIT
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <filesystem>
#include <map>
#include <string>

#include "mini/export.h"

namespace mini {

/// What a safetensors file holds.
struct SafetensorsFile {
  torch::OrderedDict<std::string, at::Tensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

/// Maps the file at `path` and returns its tensors, on the CPU, without gradients.
///
/// Nothing is copied: pages come from the file when they are first read, and the mapping lives as
/// long as one of the tensors. It is private: writing to a tensor changes that tensor, never the
/// file. The file may be replaced meanwhile, as `save_safetensors` does; one that is shortened or
/// written to in place takes the tensors' bytes with it, as with every mapping.
/// Copied are only tensors whose bytes are not aligned for their elements, and BOOL tensors with
/// bytes other than 0 and 1, where every byte but 0 becomes true.
///
/// Every type of the format is read that LibTorch has: all but F6_E2M3 and F6_E3M2. F4 becomes
/// Float4_e2m1fn_x2, whose last dimension counts pairs.
///
/// Throws c10::Error, with the path, if the file cannot be read or is not exactly what the format
/// demands; the message names the tensor or the field. No memory is taken on a claimed size.
MINI_API SafetensorsFile load_safetensors(const std::filesystem::path& path);

/// Writes `tensors` to `path`: on a full disk, an error or a kill the old file stays as it was.
///
/// Tensors may lie on any device and have any strides; each is packed as it is written, so that at
/// most one copy exists at a time. Tensors that share memory are written once for each name. The
/// same tensors and metadata give the same bytes, in whatever order they come.
///
/// Throws c10::Error if the file cannot be written, or for a tensor that is undefined, has no
/// memory (meta), is not dense or is of a type that the format has no name for.
MINI_API void save_safetensors(const std::filesystem::path& path,
                               const torch::OrderedDict<std::string, at::Tensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace mini
