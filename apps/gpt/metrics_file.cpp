// SPDX-License-Identifier: MIT
#include "gpt/metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

#include "files/mapped_file.h"

namespace mini::app {
namespace {

Json object_of(std::string_view line) {
  Json json;
  try {
    json = detail::parse_json(line);
  } catch (const std::runtime_error&) {
    // The reason is a position in the line, which would be taken for a position in the file.
  }
  if (!json.is_object()) {
    throw std::runtime_error("expected a JSON object");
  }
  return json;
}

// Calls `read(line)` for each complete line until it returns false. Returns the offset of the first
// line that was not read. Adds the number of the line to errors.
template <typename Read>
size_t read_lines(const std::filesystem::path& path, std::string_view text, const Read& read) {
  size_t begin = 0;
  for (int64_t number = 1;; ++number) {
    const size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) {
      return begin;
    }
    try {
      const Json line = object_of(text.substr(begin, end - begin));
      if (!read(line)) {
        return begin;
      }
    } catch (const std::exception& error) {
      throw std::runtime_error("'" + path.string() + "', line " + std::to_string(number) + ": " +
                               error.what());
    }
    begin = end + 1;
  }
}

// train_gpt writes NaN as null, because JSON has no NaN.
std::optional<double> val_loss_of(const Json& line) {
  if (!line.contains("val_loss")) {
    return std::nullopt;
  }
  return line["val_loss"].is_null() ? NAN : detail::json_member<double>(line, "val_loss");
}

StepMetrics step_of(const Json& line) {
  return {.step = detail::json_member<int64_t>(line, "step"),
          .tokens = detail::json_member<int64_t>(line, "tokens"),
          .train_loss = detail::json_member<double>(line, "train_loss"),
          .val_loss = val_loss_of(line),
          .learning_rate = detail::json_member<double>(line, "learning_rate"),
          .gradient_norm = detail::json_member<double>(line, "gradient_norm"),
          .tokens_per_s = detail::json_member<double>(line, "tokens_per_s"),
          .seconds = detail::json_member<double>(line, "seconds")};
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t step)
    : path_(path),
      descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!descriptor_.is_open()) {
    fail();
  }
  const detail::MappedFile file(path);
  const size_t end = read_lines(path, file.bytes(), [step](const Json& line) {
    return detail::json_member<int64_t>(line, "step") <= step;
  });
  if (::ftruncate(descriptor_.number(), static_cast<off_t>(end)) != 0) {
    fail();
  }
}

void MetricsFile::append(const Json& line) {
  const std::string text = line.dump() + '\n';
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = ::write(descriptor_.number(), rest.data(), rest.size());
    if (written < 0 && errno != EINTR) {
      fail();
    }
    rest.remove_prefix(static_cast<size_t>(std::max<ssize_t>(0, written)));
  }
}

void MetricsFile::flush() {
  if (::fsync(descriptor_.number()) != 0) {
    fail();
  }
}

void MetricsFile::fail() const { detail::throw_system_error("cannot write", path_, errno); }

Metrics read_metrics(const std::filesystem::path& path) {
  const detail::MappedFile file(path);
  Metrics metrics{};
  const size_t end = read_lines(path, file.bytes(), [&](const Json& line) {
    const StepMetrics step = step_of(line);
    if (!metrics.steps.empty() && step.step <= metrics.steps.back().step) {
      throw std::runtime_error("step: expected one above " +
                               std::to_string(metrics.steps.back().step) + ", got " +
                               std::to_string(step.step));
    }
    metrics.steps.push_back(step);
    return true;
  });
  metrics.torn = end < file.bytes().size();
  if (metrics.steps.empty()) {
    throw std::runtime_error("'" + path.string() + "' has no finished step yet");
  }
  return metrics;
}

}  // namespace mini::app
