// SPDX-License-Identifier: MIT
// Errors of inner functions, reported under the name of the public function that was called.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace mini::detail {

/// Returns `body()`. If `body` throws a `Caught`, throws a c10::Error whose message is `prefix`
/// followed by the message of the exception. Other exceptions pass unchanged.
///
///     return with_prefix("load_config: ", [&] { return read_json(path); });
template <typename Caught = std::exception, typename Body>
auto with_prefix(const std::string& prefix, const Body& body) {
  try {
    return body();
  } catch (const Caught& caught) {
    const std::exception& error = caught;
    // what() of a c10::Error ends in a backtrace.
    const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
    TORCH_CHECK(false, prefix,
                torch_error != nullptr ? torch_error->what_without_backtrace() : error.what());
  }
}

}  // namespace mini::detail
