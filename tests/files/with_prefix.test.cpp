// SPDX-License-Identifier: MIT
#include "files/with_prefix.h"

#include <stdexcept>
#include <string>

#include "support/error_of.h"
#include "support/support.h"

using mini::detail::with_prefix;
using mini::test::error_of;

TEST_CASE("with_prefix puts the prefix before the message of the named exception",
          "[with_prefix]") {
  CHECK(with_prefix<std::runtime_error>("f: ", [] { return 3; }) == 3);
  CHECK(error_of([] {
          with_prefix<std::runtime_error>("f: ", [] { throw std::range_error("too large"); });
        }) == "f: too large");
  CHECK(error_of([] {
          with_prefix<c10::Error>("f: ", [] { TORCH_CHECK(false, "g: too large"); });
        }) == "f: g: too large");
}

TEST_CASE("with_prefix passes other exceptions unchanged", "[with_prefix]") {
  CHECK_THROWS_AS(
      with_prefix<std::runtime_error>("f: ", [] { throw std::invalid_argument("negative"); }),
      std::invalid_argument);
  CHECK(error_of([] {
          with_prefix<std::runtime_error>("f: ", [] { TORCH_CHECK(false, "g: too large"); });
        }) == "g: too large");
}
