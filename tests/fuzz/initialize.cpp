// SPDX-License-Identifier: MIT
// Runs before the first input of a target that uses LibTorch.
#include <ATen/Parallel.h>
#include <c10/util/Logging.h>

#include <string>

// Collecting a backtrace for each refused input would take most of the time.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  c10::SetStackTraceFetcher([] { return std::string(); });
  at::set_num_threads(1);
  return 0;
}
