// SPDX-License-Identifier: MIT
#include <fstream>
#include <set>

#include "mini/attention.h"
#include "support/support.h"

TEST_CASE("the process loads exactly one OpenMP runtime", "[openmp]") {
  const at::Tensor q = at::randn({4, 4, 128, 32});
  mini::scaled_dot_product_attention(q, q, q);  // loads the runtime if it is not loaded yet

  std::set<std::string> runtimes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path == std::string::npos) {
      continue;
    }
    const std::string name = line.substr(line.rfind('/') + 1);
    for (const char* runtime : {"libgomp", "libomp", "libiomp"}) {
      if (name.rfind(runtime, 0) == 0) {
        runtimes.insert(line.substr(path));
      }
    }
  }
  INFO(c10::str(std::vector<std::string>(runtimes.begin(), runtimes.end())));
  CHECK(runtimes.size() == 1);
}
