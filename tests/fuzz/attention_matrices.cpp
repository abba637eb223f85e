// SPDX-License-Identifier: MIT
// libFuzzer's target for the JSON input of trace_attention. read_attention_matrices must either
// refuse the bytes or return tensors of the documented shapes and dtypes.
#include "lesson/matrices.h"

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "memory_file.h"

using mini::app::AttentionMatrices;
using mini::fuzz::MemoryFile;
using mini::fuzz::require;

namespace {

void check_matrix(const at::Tensor& tensor) {
  require(tensor.defined(), "q, k and v are defined");
  require(tensor.dim() == 2 || tensor.dim() == 3, "a tensor has two or three dimensions");
  require(tensor.numel() > 0, "a tensor has an element");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static MemoryFile file;
  file.replace({reinterpret_cast<const char*>(data), size});
  AttentionMatrices matrices;
  try {
    matrices = mini::app::read_attention_matrices(file.path());
  } catch (const std::runtime_error&) {  // every other exception is a finding
    return 0;
  }
  for (const at::Tensor& tensor : {matrices.q, matrices.k, matrices.v}) {
    check_matrix(tensor);
    require(tensor.scalar_type() == at::kDouble, "q, k and v are float64");
    require(tensor.isfinite().all().item<bool>(), "q, k and v are finite");
  }
  if (matrices.mask) {
    check_matrix(*matrices.mask);
    require(!matrices.mask->isnan().any().item<bool>(), "a mask has no NaN");
  }
  return 0;
}
