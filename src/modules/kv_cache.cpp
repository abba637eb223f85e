// SPDX-License-Identifier: MIT
#include "mini/kv_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>

#include <string>

namespace mini {
namespace {

bool same_kind(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.device() == b.device();
}

std::string described(const at::Tensor& tensor) {
  return c10::str(tensor.scalar_type(), " ", tensor.sizes(), " on ", tensor.device());
}

// Whether k could be appended to keys: only T may differ.
bool fits_after(const at::Tensor& k, const at::Tensor& keys) {
  return same_kind(k, keys) && k.size(0) == keys.size(0) && k.size(1) == keys.size(1) &&
         k.size(3) == keys.size(3);
}

}  // namespace

KvCache::KvCache(int64_t capacity) : capacity_(capacity) {
  TORCH_CHECK(capacity > 0, "KvCache: expected a capacity above 0, got ", capacity);
}

void KvCache::append(const at::Tensor& k, const at::Tensor& v) {
  TORCH_CHECK(k.defined() && v.defined(), "KvCache::append: expected k and v, got an undefined ",
              !k.defined() ? "k" : "v");
  TORCH_CHECK(k.dim() == 4 && k.sizes() == v.sizes() && same_kind(k, v),
              "KvCache::append: expected k and v (B, nh, T, hs) of equal shape, dtype and device, "
              "got k ",
              described(k), " and v ", described(v));
  TORCH_CHECK(!c10::GradMode::is_enabled() || !(k.requires_grad() || v.requires_grad()),
              "KvCache::append: expected k and v that require no gradients, since a cache stores "
              "none; use a NoGradGuard");
  const int64_t added = k.size(2);
  TORCH_CHECK(added <= capacity_ - length_, "KvCache::append: expected at most ",
              capacity_ - length_, " more positions (capacity ", capacity_, ", length ", length_,
              "), got ", added);
  const bool fits = keys_.defined() && fits_after(k, keys_);
  TORCH_CHECK(length_ == 0 || fits,
              "KvCache::append: expected k and v to match the cached keys in all but T, ",
              described(keys()), ", got ", described(k));
  if (!fits) {
    keys_ = at::empty({k.size(0), k.size(1), capacity_, k.size(3)}, k.options());
    values_ = at::empty_like(keys_);
  }
  keys_.narrow(2, length_, added).copy_(k);
  values_.narrow(2, length_, added).copy_(v);
  length_ += added;
}

void KvCache::truncate(int64_t length) {
  TORCH_CHECK(length >= 0 && length <= length_, "KvCache::truncate: expected a length from 0 to ",
              length_, ", got ", length);
  length_ = length;
}

at::Tensor KvCache::keys() const { return keys_.defined() ? keys_.narrow(2, 0, length_) : keys_; }

at::Tensor KvCache::values() const {
  return values_.defined() ? values_.narrow(2, 0, length_) : values_;
}

}  // namespace mini
