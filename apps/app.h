// SPDX-License-Identifier: MIT
// What every app does alike: options, --format and --output, one-line errors, exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "mini/terminal.h"
#include "report.h"

namespace mini {

/// A command line that ends in a report. Results go to standard output, errors to standard error;
/// the exit status is 0 when done, 1 when it failed, 2 for wrong usage.
class App : public CLI::App {
 public:
  /// `pictures` are the formats that it can write beside text, json and csv.
  App(const std::string& name, const std::string& description,
      const std::vector<Format>& pictures = {});

  /// Parses the command line, makes the report, writes it.  Returns the exit status.
  int run(int argc, char** argv, const std::function<Report()>& make_report);

  /// Where the text of a report will be read: a file shows no colours.
  Terminal terminal() const { return output_.empty() ? standard_output() : Terminal{}; }

 private:
  int print_help();

  Format format_ = Format::kText;
  std::string output_;
};

/// Thrown for options that are each right and wrong together: exit status 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Checks on an option's text; each says what was expected and what came. Those of integers go to
/// `transform`, and have it read as decimal; LibTorch's generators use 32 bits of a seed.
CLI::Validator positive_integer();
CLI::Validator seed_number();
CLI::Validator file_name();
CLI::Validator finite_number();
CLI::Validator divisor();

}  // namespace mini
