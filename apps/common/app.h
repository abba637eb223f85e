// SPDX-License-Identifier: MIT
// What all programs share: checked options, help, --format and --output, errors, exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/report.h"
#include "mini/terminal.h"

namespace mini::app {

/// A command line. Results go to standard output. Errors go to standard error, one line each. The
/// exit status is 0 for success, 1 for a failure and 2 for wrong usage.
///
/// --help shows the default of each option, which is the value of its variable when the option is
/// added. `default_str()` replaces that text.
class CommandLine : public CLI::App {
 public:
  CommandLine(const std::string& name, const std::string& description);

  /// Parses the command line, then calls `body`. Prints the exceptions of both as errors.
  /// Returns the exit status.
  int run(int argc, char** argv, const std::function<void()>& body);
};

/// A command line whose result is a report.
class App : public CommandLine {
 public:
  /// `pictures` are the formats that the program supports in addition to text, json and csv.
  App(const std::string& name, const std::string& description,
      const std::vector<Format>& pictures = {});

  /// Parses the command line, then makes the report and writes it. Returns the exit status.
  int run(int argc, char** argv, const std::function<Report()>& make_report);

  /// The terminal that shows the text of the report. A file has no colours.
  Terminal terminal() const { return output_.empty() ? standard_output() : Terminal{}; }

 private:
  Format format_ = Format::kText;
  std::string output_;
};

/// Thrown for conflicting options. The exit status is 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Checks of an option's text. Each message states what was expected and what came.
///
/// Pass the checks of integers to `transform`, which lets them rewrite the number as decimal: CLI11
/// reads a leading 0 as octal. A seed has 32 bits, as many as LibTorch's generators use.
CLI::Validator positive_integer();
CLI::Validator whole_number();
CLI::Validator thread_count();
CLI::Validator seed_number();
/// The number that the whole text states, in any locale; nothing if it states none.
std::optional<double> number_of(const std::string& text);
CLI::Validator file_name();
CLI::Validator finite_number();
CLI::Validator number_from_zero();
CLI::Validator positive_number();
CLI::Validator probability();
CLI::Validator decay_rate();
CLI::Validator positive_probability();
CLI::Validator divisor();
CLI::Validator one_of(const std::vector<std::string>& words);
/// Rewrites a number to its shortest form, so that equal numbers are equal texts.
CLI::Validator one_of_or_positive_number(const std::vector<std::string>& words);

/// Splits a list at its commas and passes each part, also an empty part, to `check`.
/// Throws CLI::ValidationError with the name of the option.
std::vector<std::string> parts_of_list(const std::string& option, const std::string& list,
                                       const CLI::Validator& check);

/// Adds an option for numbers separated by commas. (CLI11's own lists skip the empty part of 1,,2.)
template <typename Number>
CLI::Option* add_list(CLI::App& app, const std::string& option, std::vector<Number>& numbers,
                      const std::string& description, const CLI::Validator& check) {
  const auto read = [&numbers, option, check](const std::string& list) {
    numbers.clear();
    for (const std::string& part : parts_of_list(option, list, check)) {
      CLI::detail::lexical_cast(part, numbers.emplace_back());
    }
  };
  return app.add_option_function<std::string>(option, read, description)
      ->default_str(CLI::detail::join(numbers, ","))
      ->type_name("LIST");
}

}  // namespace mini::app
