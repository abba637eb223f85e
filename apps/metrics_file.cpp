// SPDX-License-Identifier: MIT
#include "metrics_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include "mapped_file.h"

namespace mini {
namespace {

// Where the lines up to that of `step` end.
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

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path, int64_t step)
    : path_(path),
      descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0) {
    fail();
  }
  const size_t end = end_of_step(MappedFile(path).bytes(), step);
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

}  // namespace mini
