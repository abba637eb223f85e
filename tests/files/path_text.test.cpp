// SPDX-License-Identifier: MIT
#include "files/path_text.h"

#include "support/support.h"

using mini::detail::path_of;
using mini::detail::path_text;

TEST_CASE("a path becomes UTF-8 text and back", "[path_text]") {
  for (const std::string path : {"/a/b.txt",
                                 "/gr\xc3\xb6\xc3\x9f"
                                 "e/100%25 x",
                                 "/"}) {
    CHECK(path_text(path) == path);
    CHECK(path_of(path) == path);
  }
  CHECK(path_text("/t\xe9xt.txt") == "file:///t%E9xt.txt");
  CHECK(path_text("/50% \xff/\xc3\xb6") == "file:///50%25%20%FF/%C3%B6");
  std::string all = "/";
  for (int byte = 1; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(path_of(path_text(all)) == all);
}
