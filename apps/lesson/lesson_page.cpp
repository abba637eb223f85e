// SPDX-License-Identifier: MIT
#include "lesson/lesson_page.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "common/app.h"
#include "common/page.h"

namespace mini::app {

// page/lesson.html with its styles and scripts. The build generates this function (embed.cmake).
std::string_view lesson_page_source();

namespace {

constexpr size_t kMostBytes = 300'000;

}  // namespace

std::string lesson_page(std::string_view title, Json data) {
  std::string source(lesson_page_source());
  replace_all(source, "@title@", title);
  std::string html = page_with_data(source, std::move(data));
  if (html.size() > kMostBytes) {
    throw UsageError(
        fmt::format("--format html: expected a page of at most {} KB, got {} KB; use fewer tokens",
                    kMostBytes / 1000, html.size() / 1000));
  }
  return html;
}

double page_divisor(double scale, int64_t head_size) {
  const double divisor = 1 / scale, most = static_cast<double>(head_size);
  constexpr double kRounding = 1e-12;
  if (!(divisor >= 1 - kRounding && divisor <= most * (1 + kRounding))) {
    throw UsageError(fmt::format(
        "--scale: expected a factor from 1 / head size to 1, the range of the page, got {:g}",
        scale));
  }
  return divisor;
}

}  // namespace mini::app
