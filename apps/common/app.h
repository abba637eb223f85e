// SPDX-License-Identifier: MIT
// What the apps do alike: options, --format and --output, one-line errors, exit status.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/report.h"
#include "mini/terminal.h"

namespace mini::app {

/// A command line. Results go to standard output, errors to standard error, each on one line; the
/// exit status is 0 when done, 1 when it failed, 2 for wrong usage.
class CommandLine : public CLI::App {
 public:
  CommandLine(const std::string& name, const std::string& description);

  /// Parses the command line and calls `body`, whose exceptions are the errors.  Returns the exit
  /// status.
  int run(int argc, char** argv, const std::function<void()>& body);
};

/// A command line that ends in a report.
class App : public CommandLine {
 public:
  /// `pictures` are the formats that it can write beside text, json and csv.
  App(const std::string& name, const std::string& description,
      const std::vector<Format>& pictures = {});

  /// Parses the command line, makes the report, writes it.  Returns the exit status.
  int run(int argc, char** argv, const std::function<Report()>& make_report);

  /// Where the text of a report will be read: a file shows no colours.
  Terminal terminal() const { return output_.empty() ? standard_output() : Terminal{}; }

 private:
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
CLI::Validator whole_number();
CLI::Validator thread_count();
CLI::Validator seed_number();
CLI::Validator file_name();
CLI::Validator finite_number();
CLI::Validator number_from_zero();
CLI::Validator positive_number();
CLI::Validator probability();
CLI::Validator decay_rate();
CLI::Validator positive_probability();
CLI::Validator divisor();
CLI::Validator one_of(const std::vector<std::string>& words);

/// The parts of a list separated by commas, each as `check` leaves it; an empty one is checked too.
/// Throws CLI::ValidationError with the name of the option.
std::vector<std::string> parts_of_list(const std::string& option, const std::string& list,
                                       const CLI::Validator& check);

/// An option for numbers separated by commas. (CLI11 by itself passes over an empty place in 1,,2.)
template <typename Number>
CLI::Option* add_list(CLI::App& app, const std::string& option, std::vector<Number>& numbers,
                      const std::string& description, const CLI::Validator& check) {
  const auto read = [&numbers, option, check](const std::string& list) {
    numbers.clear();
    for (const std::string& part : parts_of_list(option, list, check)) {
      CLI::detail::lexical_cast(part, numbers.emplace_back());
    }
  };
  return app.add_option_function<std::string>(option, read, description)->type_name("LIST");
}

}  // namespace mini::app
