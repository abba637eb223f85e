// SPDX-License-Identifier: MIT
// Reads and writes safetensors files, the format that Python's `safetensors` package uses.
//
// Format  https://huggingface.co/docs/safetensors
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/ordered_dict.h>

#include <filesystem>
#include <map>
#include <string>

#include "mini/export.h"

namespace mini {

/// The contents of a safetensors file.
struct SafetensorsFile {
  torch::OrderedDict<std::string, at::Tensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

/// Maps the file at `path` into memory and returns its tensors, on the CPU and without gradients.
///
/// The bytes are not copied. The kernel loads each page on first access, and the mapping lives as
/// long as one of the tensors. The mapping is private: writing to a tensor never changes the file.
/// Another process may replace the file, as `save_safetensors` does. If a process truncates the
/// file or writes to it in place, the tensors become invalid: their contents may change, and access
/// beyond the new end of the file raises SIGBUS.
/// Two kinds of tensors are copied: those whose data is not aligned for their elements, and BOOL
/// tensors with bytes other than 0 and 1. In a BOOL tensor every byte except 0 becomes true.
///
/// All types of the format are supported except F6_E2M3 and F6_E3M2, which LibTorch does not have.
/// F4 becomes Float4_e2m1fn_x2, whose last dimension counts pairs of elements.
///
/// Throws c10::Error, with the path, if the file cannot be read or violates the format. The message
/// names the tensor or the field. Sizes stated in the file are checked against its actual length
/// before memory is allocated for them.
MINI_API SafetensorsFile load_safetensors(const std::filesystem::path& path);

/// Writes `tensors` and `metadata` to `path`. If the write fails or the process is killed, the old
/// file stays unchanged.
///
/// Tensors of any device and any strides are accepted. Each tensor is packed when it is written, so
/// at most one tensor is copied at a time. Tensors that share memory are written once per name. The
/// bytes of the file do not depend on the order of the tensors.
///
/// Throws c10::Error if the file cannot be written. Also throws c10::Error for a tensor that is
/// undefined, has no memory (meta), is not dense, or has a type that is not in the format.
MINI_API void save_safetensors(const std::filesystem::path& path,
                               const torch::OrderedDict<std::string, at::Tensor>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

}  // namespace mini
