// SPDX-License-Identifier: MIT
#include "kernels/targets.h"

#include <cstdint>
#include <cstdlib>

#include "kernels/dispatch.h"

namespace mini::kernels {
namespace {

// The bit of a supported instruction set, or 0.
int64_t find_target(const std::string& name) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name == hwy::TargetName(target)) return target;
  }
  return 0;
}

// What MINI_SIMD_TARGET selects.
struct Default {
  Default() {
    const char* value = std::getenv("MINI_SIMD_TARGET");
    if (value == nullptr || *value == '\0') return;
    if (const int64_t target = find_target(value)) {
      targets = target;
      return;
    }
    error = "MINI_SIMD_TARGET: expected an instruction set that this processor supports (";
    for (const std::string& name : supported_targets()) error += name + ", ";
    error.replace(error.size() - 2, 2, "), got \"" + std::string(value) + "\"");
  }

  int64_t targets = hwy::SupportedTargets();
  std::string error;
};

const Default& default_targets() {
  static const Default read_once;
  return read_once;
}

struct Chosen {
  Chosen() { target.Update(default_targets().targets); }
  hwy::ChosenTarget target;  // atomic
};

Chosen& chosen() {
  static Chosen in_use;
  return in_use;
}

}  // namespace

const hwy::ChosenTarget& chosen_target() { return chosen().target; }

std::vector<std::string> supported_targets() {
  std::vector<std::string> names;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

bool set_target(const std::string& name) {
  const int64_t targets = name.empty() ? default_targets().targets : find_target(name);
  if (targets == 0) return false;
  chosen().target.Update(targets);
  return true;
}

const char* target_error() {
  const std::string& error = default_targets().error;
  return error.empty() ? nullptr : error.c_str();
}

}  // namespace mini::kernels
