// SPDX-License-Identifier: MIT
// The choice of the instruction set.
#include "kernels/targets.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "modules/functional.h"
#include "support/attention_support.h"
#include "support/targets.h"

using namespace mini;
using namespace mini::test;

namespace {

// Runs a hidden test of this program in a new process, which reads the variable anew.
bool passes(const std::string& test, const std::string& mini_simd_target) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  return std::system(("MINI_TARGETS_CHILD=1 MINI_SIMD_TARGET='" + mini_simd_target + "' '" + self +
                      "' '" + test + "' >/dev/null 2>&1")
                         .c_str()) == 0;
}

// Hidden tests run anyway if the command line only excludes tests.
bool is_child() { return std::getenv("MINI_TARGETS_CHILD") != nullptr; }

// Results of both kernel files.
at::Tensor kernel_results() {
  torch::manual_seed(1);
  const at::Tensor x = at::randn({5, 77, 40});
  return at::cat({attention({x, x, x}), mini::detail::gelu(x, "none")});
}

}  // namespace

// SSE4 has no fused multiply-add and AVX-512 divides differently, so each has other bits.
TEST_CASE("child: the kernels use MINI_SIMD_TARGET", "[.targets_child]") {
  if (!is_child()) return;
  const std::string wanted = std::getenv("MINI_SIMD_TARGET");
  CHECK(kernels::target_name() == wanted);
  const at::Tensor by_default = kernel_results();
  REQUIRE(kernels::set_target(wanted));
  CHECK_THAT(by_default, Equals(kernel_results()));
  for (const std::string& name : kernels::supported_targets()) {
    REQUIRE(kernels::set_target(name));
    CHECK(kernels::target_name() == name);
  }
  kernels::set_target("");
  CHECK(kernels::target_name() == wanted);
}

TEST_CASE("child: an unknown MINI_SIMD_TARGET is an error of every kernel", "[.targets_child]") {
  if (!is_child()) return;
  const at::Tensor x = at::randn({3, 4, 8});
  const std::string expected =
      "MINI_SIMD_TARGET: expected an instruction set that this processor supports (" +
      kernels::supported_targets()[0];
  for (int call = 0; call < 2; ++call) {
    CHECK_THROWS_WITH(attention({x, x, x}), ContainsSubstring(expected));
    CHECK_THROWS_WITH(attention_path(x, x, x), ContainsSubstring(expected));
    CHECK_THROWS_WITH(mini::detail::gelu(x, "none"), ContainsSubstring(", got \"avx9\""));
    CHECK_THROWS_AS(mini::detail::layer_norm(x, at::ones({8}), {}), c10::Error);
  }
  CHECK(attention_steps(x, x, x).output.defined());  // needs no kernel
}

TEST_CASE("MINI_SIMD_TARGET selects the instruction set of all kernels", "[kernel][targets]") {
  for (const std::string& name : kernels::supported_targets()) {
    INFO(name);
    CHECK(passes("child: the kernels use MINI_SIMD_TARGET", name));
  }
  CHECK(passes("child: an unknown MINI_SIMD_TARGET is an error of every kernel", "avx9"));
}

TEST_CASE("set_target refuses an unknown instruction set and changes nothing",
          "[kernel][targets]") {
  const std::string before = kernels::target_name();
  CHECK_FALSE(kernels::set_target("avx9"));
  CHECK(kernels::target_name() == before);
}
