// SPDX-License-Identifier: MIT
#include "common/app.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string_view>

#include "figures/display_text.h"

namespace mini::app {
namespace {

constexpr int kDone = 0;
constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

// The number that the whole text states, if it states one.
template <typename Number>
std::optional<Number> parse(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

std::string expected(const std::string& what, const std::string& text) {
  return fmt::format("expected {}, got '{}'", what, text);
}

CLI::Validator expects(const std::string& what, std::function<bool(const std::string&)> holds) {
  return {[what, holds = std::move(holds)](const std::string& text) {
            return holds(text) ? "" : expected(what, text);
          },
          ""};
}

// `holds` is called with NaN for text that is not a number.
CLI::Validator expects_number(const std::string& what, bool (*holds)(double)) {
  return expects(
      what, [holds](const std::string& text) { return holds(parse<double>(text).value_or(NAN)); });
}

// Rewrites the number without leading zeros, which would make it octal.
CLI::Validator expects_integer(const std::string& what, uint64_t least, uint64_t most) {
  return {[=](std::string& text) {
            const std::optional<uint64_t> number = parse<uint64_t>(text);
            if (!number || *number < least || *number > most) {
              return expected(what, text);
            }
            text = std::to_string(*number);
            return std::string();
          },
          ""};
}

std::string name_of(Format format) {
  constexpr const char* kNames[] = {"text", "json", "csv", "svg", "html"};
  return kNames[static_cast<int>(format)];
}

// "text, json or csv"
std::string choice_of(const std::vector<Format>& formats) {
  std::string choice;
  for (const Format format : formats) {
    const bool last = format == formats.back();
    choice += (choice.empty() ? "" : last ? " or " : ", ") + name_of(format);
  }
  return choice;
}

// Joins a heading and the lines below it: "expected: a; b; c (and 2 more)".
std::string on_one_line(const std::string& message) {
  constexpr int kMostLines = 8;
  std::istringstream lines(message);
  std::string joined, line;
  int count = 0;
  while (std::getline(lines, line)) {
    const size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos || ++count > kMostLines) continue;
    joined += (joined.empty() ? "" : joined.ends_with(':') ? " " : "; ") + line.substr(first);
  }
  return count <= kMostLines ? joined : fmt::format("{} (and {} more)", joined, count - kMostLines);
}

// LibTorch's error of a failed allocation contains "you tried to allocate 4096 bytes".
std::string message_of(const c10::Error& error) {
  const std::string message = error.what_without_backtrace();
  constexpr std::string_view kStart = "you tried to allocate ";
  const size_t start = message.find(kStart), end = message.find(" bytes", start);
  if (message.find("CPUAllocator") == std::string::npos || end == std::string::npos) {
    return message;
  }
  const size_t number = start + kStart.size();
  return fmt::format("not enough memory for {} bytes", message.substr(number, end - number));
}

// Prints one line, even if the message quotes control characters.
void print_error(const std::string& app, const std::string& message) {
  std::string line = app + ": " + on_one_line(message);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  std::fputs((line + '\n').c_str(), stderr);  // no stream is left for a failure of this one
}

// If a standard stream was closed before the program started, the next file that is opened gets its
// number, and messages or results would be written into that file. So closed streams are opened on
// /dev/null, in the mode in which their use fails as it does for a closed stream.
void reserve_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) == -1 && errno == EBADF) {
      ::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free number
    }
  }
}

std::string names_of(const std::set<CLI::Option*>& options) {
  std::set<std::string> names;  // sorted: CLI11 orders the options by address
  for (const CLI::Option* option : options) {
    names.insert(option->get_name());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// Help that looks alike in all versions of CLI11: requirements and the default follow the
// description, and lines fit 80 columns.
class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const bool flag = option->get_type_size() == 0;
    return flag || option->get_type_name().empty() ? "" : " " + option->get_type_name();
  }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::vector<std::string> notes;
    const auto add_note = [&notes](const char* form, const std::string& value) {
      if (!value.empty()) notes.push_back(form + value);
    };
    if (option->get_required()) notes.emplace_back("required");
    add_note("needs ", names_of(option->get_needs()));
    add_note("excludes ", names_of(option->get_excludes()));
    add_note("default: ", option->get_default_str());
    std::string text = option->get_description();
    if (!notes.empty()) {
      text += fmt::format(" ({})", fmt::join(notes, "; "));
    }
    std::string lines = detail::wrapped(text, kColumns - static_cast<int64_t>(get_column_width()));
    lines.pop_back();  // CLI11 ends the last line
    return lines;
  }

 private:
  static constexpr int64_t kColumns = 80;
};

}  // namespace

CommandLine::CommandLine(const std::string& name, const std::string& description)
    : CLI::App(description, name) {
  option_defaults()->always_capture_default();
  formatter(std::make_shared<HelpFormatter>());
}

int CommandLine::run(int argc, char** argv, const std::function<void()>& body) {
  reserve_closed_streams();
  try {
    try {
      parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
      write_to_stdout(help());
      return kDone;
    }
    body();
    return kDone;
  } catch (const CLI::ParseError& error) {
    print_error(get_name(), fmt::format("{} (see --help)", error.what()));
    return kWrongUsage;
  } catch (const UsageError& error) {
    print_error(get_name(), fmt::format("{} (see --help)", error.what()));
    return kWrongUsage;
  } catch (const c10::Error& error) {
    print_error(get_name(), message_of(error));
    return kFailed;
  } catch (const std::bad_alloc&) {
    print_error(get_name(), "not enough memory");
    return kFailed;
  } catch (const std::exception& error) {
    print_error(get_name(), error.what());
    return kFailed;
  }
}

App::App(const std::string& name, const std::string& description,
         const std::vector<Format>& pictures)
    : CommandLine(name, description) {
  std::vector<Format> formats = {Format::kText, Format::kJson, Format::kCsv};
  formats.insert(formats.end(), pictures.begin(), pictures.end());
  const std::string choice = choice_of(formats);
  add_option("--format", format_, fmt::format("Output format: {}", choice))
      ->transform(CLI::Validator(
          [formats, choice](std::string& text) {
            for (const Format format : formats) {
              if (text == name_of(format)) {
                text = std::to_string(static_cast<int>(format));
                return std::string();
              }
            }
            return expected(choice, text);
          },
          ""))
      ->default_str(name_of(format_))
      ->type_name("FORMAT");
  add_option("--output", output_, "Write to this file instead of standard output")
      ->check(file_name())
      ->type_name("FILE");
}

int App::run(int argc, char** argv, const std::function<Report()>& make_report) {
  return CommandLine::run(argc, argv, [&] {
    const Report report = make_report();
    if (!report.failure.empty() && !output_.empty()) {
      throw std::runtime_error(fmt::format("{}; '{}' is left as it was", report.failure, output_));
    }
    write_report(
        report, format_,
        output_.empty() ? std::nullopt : std::make_optional<std::filesystem::path>(output_));
    if (!report.failure.empty()) {
      throw std::runtime_error(report.failure);
    }
  });
}

CLI::Validator positive_integer() {
  return expects_integer("a whole number from 1 to 2^31 - 1", 1, (uint64_t{1} << 31) - 1);
}

CLI::Validator whole_number() {
  return expects_integer("a whole number from 0 to 2^31 - 1", 0, (uint64_t{1} << 31) - 1);
}

// OpenMP keeps its team of threads on the stack, which far more threads would overflow.
CLI::Validator thread_count() { return expects_integer("a whole number from 1 to 1024", 1, 1024); }

CLI::Validator seed_number() {
  return expects_integer("a whole number from 0 to 2^32 - 1", 0, (uint64_t{1} << 32) - 1);
}

CLI::Validator file_name() {
  return expects("a file name", [](const std::string& text) { return !text.empty(); });
}

std::optional<double> number_of(const std::string& text) { return parse<double>(text); }

CLI::Validator finite_number() {
  return expects_number("a finite number", [](double number) { return std::isfinite(number); });
}

CLI::Validator number_from_zero() {
  return expects_number("a finite number of at least 0",
                        [](double number) { return std::isfinite(number) && number >= 0; });
}

CLI::Validator positive_number() {
  return expects_number("a finite number above 0",
                        [](double number) { return std::isfinite(number) && number > 0; });
}

CLI::Validator probability() {
  return expects_number("a number from 0 to 1",
                        [](double number) { return number >= 0 && number <= 1; });
}

CLI::Validator decay_rate() {
  return expects_number("a number from 0 to below 1",
                        [](double number) { return number >= 0 && number < 1; });
}

CLI::Validator positive_probability() {
  return expects_number("a number above 0, at most 1",
                        [](double number) { return number > 0 && number <= 1; });
}

CLI::Validator divisor() {
  return expects_number("a finite number with a finite inverse", [](double number) {
    return std::isfinite(number) && std::isfinite(1 / number);
  });
}

CLI::Validator one_of(const std::vector<std::string>& words) {
  return expects(fmt::format("{}", fmt::join(words, " or ")), [words](const std::string& text) {
    return std::find(words.begin(), words.end(), text) != words.end();
  });
}

CLI::Validator one_of_or_positive_number(const std::vector<std::string>& words) {
  return {[=](std::string& text) {
            if (std::find(words.begin(), words.end(), text) != words.end()) return std::string();
            const double number = parse<double>(text).value_or(NAN);
            if (!std::isfinite(number) || number <= 0) {
              return expected(fmt::format("{} or a finite number above 0", fmt::join(words, ", ")),
                              text);
            }
            text = fmt::format("{}", number);
            return std::string();
          },
          ""};
}

std::vector<std::string> parts_of_list(const std::string& option, const std::string& list,
                                       const CLI::Validator& check) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    std::string& part = parts.emplace_back(list.substr(begin, end - begin));
    if (const std::string error = check(part); !error.empty()) {
      throw CLI::ValidationError(option, error);
    }
    begin = end + 1;
  }
  return parts;
}

}  // namespace mini::app
