// SPDX-License-Identifier: MIT
#include "app.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <map>
#include <optional>

namespace mini {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// The whole text as a number, or nothing.
template <typename Number>
std::optional<Number> parse(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

CLI::Validator expects(const std::string& what, std::function<bool(const std::string&)> holds) {
  return {[what, holds = std::move(holds)](const std::string& text) {
            return holds(text) ? "" : fmt::format("expected {}, got '{}'", what, text);
          },
          ""};
}

std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

void print_error(const std::string& app, const std::string& message) {
  fmt::print(stderr, "{}: {}\n", app, first_line(message));
}

}  // namespace

App::App(const std::string& name, const std::string& description) : CLI::App(description, name) {
  static const std::map<std::string, Format> formats = {
      {"text", Format::kText}, {"json", Format::kJson}, {"csv", Format::kCsv}};
  add_option("--format", format_, "Form of the output: text, json or csv (text)")
      ->transform(CLI::Validator(
          [](std::string& text) {
            const auto format = formats.find(text);
            if (format == formats.end()) {
              return fmt::format("expected text, json or csv, got '{}'", text);
            }
            text = std::to_string(static_cast<int>(format->second));
            return std::string();
          },
          ""))
      ->type_name("FORMAT");
  add_option("--output", output_, "Write to this file instead of standard output")
      ->type_name("FILE");
}

int App::run(int argc, char** argv, const std::function<Report()>& make_report) {
  try {
    parse(argc, argv);
    const Report report = make_report();
    write_report(
        report, format_,
        output_.empty() ? std::nullopt : std::make_optional<std::filesystem::path>(output_));
    if (!report.failure.empty()) {
      print_error(get_name(), report.failure);
      return kFailed;
    }
    return kDone;
  } catch (const CLI::CallForHelp& help) {
    return exit(help);
  } catch (const CLI::ParseError& error) {
    print_error(get_name(), fmt::format("{} (see --help)", error.what()));
    return kWrongUsage;
  } catch (const UsageError& error) {
    print_error(get_name(), fmt::format("{} (see --help)", error.what()));
    return kWrongUsage;
  } catch (const c10::Error& error) {
    print_error(get_name(), error.what_without_backtrace());
    return kFailed;
  } catch (const std::exception& error) {
    print_error(get_name(), error.what());
    return kFailed;
  }
}

CLI::Validator positive_integer() {
  return expects("a whole number above 0", [](const std::string& text) {
    return mini::parse<int64_t>(text).value_or(0) > 0;
  });
}

CLI::Validator seed_number() {
  return expects("a whole number from 0 to 2^64 - 1",
                 [](const std::string& text) { return mini::parse<uint64_t>(text).has_value(); });
}

CLI::Validator finite_number() {
  return expects("a finite number", [](const std::string& text) {
    return std::isfinite(mini::parse<double>(text).value_or(NAN));
  });
}

CLI::Validator divisor() {
  return expects("a finite number other than 0", [](const std::string& text) {
    const double number = mini::parse<double>(text).value_or(NAN);
    return std::isfinite(number) && std::isfinite(1 / number);
  });
}

}  // namespace mini
