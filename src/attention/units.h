// SPDX-License-Identifier: MIT
// Runs units of work on LibTorch's threads. Compile every file that includes this header with
// OpenMP: ATen's parallel loop is a template and is serial without OpenMP.
#pragma once

#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iterator>

namespace mini::detail {

/// Scratch memory of one task. A small one is on the stack, so that a small call allocates nothing.
class TaskScratch {
 public:
  explicit TaskScratch(int64_t floats) {
    if (floats > static_cast<int64_t>(std::size(on_stack_))) {
      on_heap_ = c10::GetCPUAllocator()->allocate(static_cast<size_t>(floats) * sizeof(float));
    }
  }
  float* data() { return on_heap_ ? static_cast<float*>(on_heap_.get()) : on_stack_; }

 private:
  alignas(64) float on_stack_[4096];
  at::DataPtr on_heap_;
};

/// Calls body(unit, scratch) for each unit in [0, units). Free threads fetch units in ascending
/// order, so number the units with the most work first.
template <class Body>
void for_each_unit(int64_t units, double work_of_all, int64_t scratch_floats, const Body& body) {
  // Below this much work (about 10 us on one core), starting a second thread costs more time than
  // it saves.
  constexpr double kMinParallelWork = 1e6;
  // Work per fetch; limits contention on the counter.
  constexpr double kWorkPerFetch = 2e5;
  const int64_t threads = at::get_num_threads();
  if (units <= 1 || threads == 1 || work_of_all < kMinParallelWork || at::in_parallel_region()) {
    TaskScratch scratch(scratch_floats);
    for (int64_t unit = 0; unit < units; ++unit) body(unit, scratch.data());
    return;
  }
  const double work_of_unit = work_of_all / static_cast<double>(units);
  const int64_t chunk = std::max<int64_t>(1, static_cast<int64_t>(kWorkPerFetch / work_of_unit));
  // parallel_for only starts the threads; they fetch units from the counter.
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min(threads, units), 1, [&](int64_t, int64_t) {
    TaskScratch scratch(scratch_floats);
    for (int64_t begin = next.fetch_add(chunk); begin < units; begin = next.fetch_add(chunk)) {
      const int64_t end = std::min(begin + chunk, units);
      for (int64_t unit = begin; unit < end; ++unit) body(unit, scratch.data());
    }
  });
}

}  // namespace mini::detail
