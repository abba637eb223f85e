// SPDX-License-Identifier: MIT
// Compiled once for each instruction set; targets.h chooses one at run time.
#include "kernels/attention_kernel.h"

// Highway includes each kernel file once per instruction set and requires this order.
// clang-format off
#include "kernels/disabled_targets.h"
#include "strict_math.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_kernel.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/backward-inl.h"
#include "kernels/decode-inl.h"
#include "kernels/dispatch.h"
#include "kernels/exp-inl.h"
#include "kernels/forward-inl.h"
#include "kernels/targets.h"
#include "kernels/throughput-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace mini::kernels::HWY_NAMESPACE {

void Exp2Array(const float* x, int64_t n, float* out) {
  for (int64_t i = 0; i < n; i += kLanes) {
    StoreFirst(Exp2(LoadFirst(n - i, x + i)), n - i, out + i);
  }
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace mini::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mini::kernels {

HWY_EXPORT(ForwardUnit);
HWY_EXPORT(Decode);
HWY_EXPORT(BackwardSlice);
HWY_EXPORT(DecodeBackward);
HWY_EXPORT(ForwardScratchSize);
HWY_EXPORT(DecodeScratchSize);
HWY_EXPORT(BackwardScratchSize);
HWY_EXPORT(Exp2Array);
HWY_EXPORT(MultiplyAdds);
HWY_EXPORT(TargetName);

void forward(const HeadInputs& head, const Forward& result, int64_t first_query, int64_t queries,
             float* scratch) {
  MINI_DISPATCH(ForwardUnit)(head, result, first_query, queries, scratch);
}
void decode(const HeadInputs& head, const Forward& result, float* scratch) {
  MINI_DISPATCH(Decode)(head, result, scratch);
}
void backward(const HeadInputs& head, const Backward& gradients, int64_t first_key, int64_t keys,
              float* scratch) {
  MINI_DISPATCH(BackwardSlice)(head, gradients, first_key, keys, scratch);
}
void decode_backward(const HeadInputs& head, const Backward& gradients, float* scratch) {
  MINI_DISPATCH(DecodeBackward)(head, gradients, scratch);
}

int64_t forward_scratch(const HeadInputs& head) { return MINI_DISPATCH(ForwardScratchSize)(head); }
int64_t decode_scratch(const HeadInputs& head) { return MINI_DISPATCH(DecodeScratchSize)(head); }
int64_t backward_scratch(const HeadInputs& head) {
  return MINI_DISPATCH(BackwardScratchSize)(head);
}

std::string target_name() { return MINI_DISPATCH(TargetName)(); }
void exp2(const float* x, int64_t n, float* out) { MINI_DISPATCH(Exp2Array)(x, n, out); }

double multiply_adds(int64_t rounds) {
  float result;
  const double operations = MINI_DISPATCH(MultiplyAdds)(rounds, &result);
  // Uses the result, so that the compiler does not remove the computation.
  return result == 0.0F ? 0.0 : operations;
}

}  // namespace mini::kernels
#endif  // HWY_ONCE
