// SPDX-License-Identifier: MIT
#include "mini/safetensors.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "files/atomic_file.h"
#include "files/mapped_file.h"
#include "files/safetensors_header.h"
#include "files/with_prefix.h"

namespace mini {
namespace {

namespace fs = std::filesystem;
using detail::SafetensorsEntry;
using detail::SafetensorsHeader;

constexpr std::array<std::pair<std::string_view, at::ScalarType>, 20> kTypes = {{
    {"BOOL", at::kBool},
    {"U8", at::kByte},
    {"I8", at::kChar},
    {"U16", at::kUInt16},
    {"I16", at::kShort},
    {"U32", at::kUInt32},
    {"I32", at::kInt},
    {"U64", at::kUInt64},
    {"I64", at::kLong},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"F32", at::kFloat},
    {"F64", at::kDouble},
    {"C64", at::kComplexFloat},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"F8_E4M3FNUZ", at::kFloat8_e4m3fnuz},
    {"F8_E5M2FNUZ", at::kFloat8_e5m2fnuz},
    {"F8_E8M0", at::kFloat8_e8m0fnu},
    {"F4", at::kFloat4_e2m1fn_x2},
}};

std::optional<at::ScalarType> type_of(std::string_view dtype) {
  for (const auto& [name, type] : kTypes) {
    if (name == dtype) return type;
  }
  return std::nullopt;
}

std::optional<std::string_view> dtype_of(at::ScalarType type) {
  for (const auto& [name, known] : kTypes) {
    if (known == type) return name;
  }
  return std::nullopt;
}

/// Returns one tensor of the file: a view of the mapping if possible, else a copy.
at::Tensor tensor_of(const SafetensorsEntry& entry, std::uint64_t data_begin,
                     const std::shared_ptr<detail::MappedFile>& file) {
  const std::optional<at::ScalarType> type = type_of(entry.dtype);
  TORCH_CHECK(type, "tensor '", entry.name, "': LibTorch has no type for ", entry.dtype);
  std::vector<std::int64_t> sizes = entry.shape;
  if (type == at::kFloat4_e2m1fn_x2) {
    TORCH_CHECK(sizes.back() % 2 == 0, "tensor '", entry.name, "': the last dimension of F4 ",
                at::IntArrayRef(sizes), " must be even, because LibTorch packs pairs along it");
    sizes.back() /= 2;
  }

  const std::size_t bytes = entry.end - entry.begin;
  if (bytes == 0) return at::empty(sizes, *type);
  char* data = file->data() + data_begin + entry.begin;
  const auto not_boolean = [](char byte) { return byte != 0 && byte != 1; };
  if (type == at::kBool && std::any_of(data, data + bytes, not_boolean)) {
    return at::from_blob(data, sizes, at::kByte).ne(0);
  }
  if (reinterpret_cast<std::uintptr_t>(data) % c10::elementSize(*type) != 0) {
    const at::Tensor copy = at::empty(sizes, *type);
    std::memcpy(copy.data_ptr(), data, bytes);
    return copy;
  }
  const auto keep_mapping = [file](void*) {};  // the deleter owns a reference to the mapping
  return at::from_blob(data, sizes, keep_mapping, *type);
}

SafetensorsEntry entry_of(const std::string& name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "tensor '", name, "' is undefined");
  TORCH_CHECK(!tensor.is_meta(), "tensor '", name, "' has no memory (meta)");
  TORCH_CHECK(tensor.layout() == at::kStrided && !tensor.is_nested(), "tensor '", name,
              "' must be dense, got ", tensor.layout());
  const std::optional<std::string_view> dtype = dtype_of(tensor.scalar_type());
  TORCH_CHECK(dtype, "tensor '", name, "': the format has no name for ", tensor.scalar_type());
  std::vector<std::int64_t> shape = tensor.sizes().vec();
  if (tensor.scalar_type() == at::kFloat4_e2m1fn_x2) {
    TORCH_CHECK(!shape.empty(), "tensor '", name, "': a pair of F4 needs a dimension");
    shape.back() *= 2;
  }
  return {.name = name, .dtype = *dtype, .shape = std::move(shape), .begin = 0, .end = 0};
}

}  // namespace

SafetensorsFile load_safetensors(const fs::path& path) {
  return detail::with_prefix("load_safetensors: ", [&] {
    const auto file = std::make_shared<detail::MappedFile>(path);  // its errors name the path
    return detail::with_prefix(path.string() + ": ", [&] {
      SafetensorsFile result;
      SafetensorsHeader header = detail::read_safetensors_header(file->bytes());
      result.metadata = std::move(header.metadata);
      for (const SafetensorsEntry& entry : header.tensors) {
        result.tensors.insert(entry.name, tensor_of(entry, header.data_begin, file));
      }
      return result;
    });
  });
}

void save_safetensors(const fs::path& path,
                      const torch::OrderedDict<std::string, at::Tensor>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  detail::with_prefix("save_safetensors: ", [&] {
    SafetensorsHeader header;
    header.metadata = metadata;
    for (const auto& item : tensors) header.tensors.push_back(entry_of(item.key(), item.value()));
    detail::place_tensors(header.tensors);
    const std::string head = detail::write_safetensors_header(header);
    detail::AtomicFile file(path);
    file.write(head);
    for (const SafetensorsEntry& entry : header.tensors) {
      const at::Tensor packed =
          tensors[entry.name].detach().resolve_conj().resolve_neg().cpu().contiguous();
      file.write({static_cast<const char*>(packed.const_data_ptr()), packed.nbytes()});
    }
    file.commit();
  });
}

}  // namespace mini
