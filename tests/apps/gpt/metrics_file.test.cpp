// SPDX-License-Identifier: MIT
#include "gpt/metrics_file.h"

#include <string>
#include <vector>

#include "support/file_calls.h"
#include "support/files.h"
#include "support/support.h"

using namespace mini::test;

TEST_CASE("MetricsFile::flush writes the lines to the disk", "[app][train_gpt]") {
  const TemporaryFolder folder;
  mini::app::MetricsFile metrics(folder / "metrics.jsonl", 0);
  const FileCalls calls;
  metrics.append({{"step", 1}});
  CHECK(calls.names().empty());
  metrics.flush();
  CHECK(calls.names() == std::vector<std::string>{"fsync metrics.jsonl"});
  CHECK(read_file(folder / "metrics.jsonl") == "{\"step\":1}\n");
}
