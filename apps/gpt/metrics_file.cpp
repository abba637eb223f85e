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

// The size of the lines up to that of `step`.
size_t end_of_step(std::string_view text, int64_t step) {
  size_t end = 0;
  while (true) {
    const size_t newline = text.find('\n', end);
    if (newline == std::string_view::npos) {
      return end;
    }
    const Json line = Json::parse(text.substr(end, newline - end), nullptr,
                                  /*allow_exceptions=*/false);
    const bool has_step = line.is_object() && line.contains("step") &&
                          line["step"].is_number_integer() && line["step"].get<int64_t>() <= step;
    if (!has_step) {
      return end;
    }
    end = newline + 1;
  }
}

// train_gpt writes NaN as null, because JSON has no NaN.
std::optional<double> val_loss_of(const Json& line) {
  if (!line.contains("val_loss")) {
    return std::nullopt;
  }
  return line["val_loss"].is_null() ? NAN : detail::json_member<double>(line, "val_loss");
}

StepMetrics parse_step(std::string_view text) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) {
    throw std::runtime_error("expected a JSON object");
  }
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
  if (descriptor_ < 0) {
    fail();
  }
  const size_t end = end_of_step(detail::MappedFile(path).bytes(), step);
  if (::ftruncate(descriptor_, static_cast<off_t>(end)) != 0) {
    fail();
  }
}

MetricsFile::~MetricsFile() { ::close(descriptor_); }

void MetricsFile::append(const Json& line) {
  const std::string text = line.dump() + '\n';
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t written = ::write(descriptor_, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) {
      fail();
    }
    rest.remove_prefix(static_cast<size_t>(std::max<ssize_t>(0, written)));
  }
}

void MetricsFile::flush() {
  if (::fsync(descriptor_) != 0) {
    fail();
  }
}

void MetricsFile::fail() const {
  throw std::system_error(errno, std::generic_category(), "cannot write '" + path_.string() + "'");
}

Metrics read_metrics(const std::filesystem::path& path) {
  const detail::MappedFile file(path);
  Metrics metrics{};
  std::string_view rest = file.bytes();
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    try {
      const StepMetrics step = parse_step(rest.substr(0, end));
      if (!metrics.steps.empty() && step.step <= metrics.steps.back().step) {
        throw std::runtime_error("step: expected one above " +
                                 std::to_string(metrics.steps.back().step) + ", got " +
                                 std::to_string(step.step));
      }
      metrics.steps.push_back(step);
    } catch (const std::exception& error) {
      throw std::runtime_error("'" + path.string() + "', line " +
                               std::to_string(metrics.steps.size() + 1) + ": " + error.what());
    }
  }
  metrics.torn = !rest.empty();
  if (metrics.steps.empty()) {
    throw std::runtime_error("'" + path.string() + "' has no finished step yet");
  }
  return metrics;
}

}  // namespace mini::app
