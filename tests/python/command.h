// SPDX-License-Identifier: MIT
// The main function of programs that Python tests call: errors to standard error, status 1 for the
// library's, 2 for others.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <iostream>
#include <string>
#include <vector>

namespace mini::test {

inline int run_command(int argc, char** argv, void (*run)(const std::vector<std::string>&)) {
  try {
    run({argv + 1, argv + argc});
    return 0;
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << '\n';
    return 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}

}  // namespace mini::test
