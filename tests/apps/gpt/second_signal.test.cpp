// SPDX-License-Identifier: MIT
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "apps/program.h"
#include "apps/tiny_run.h"
#include "support/support.h"

using namespace mini::test;

TEST_CASE("a second signal ends train_gpt within a step", "[app][train_gpt]") {
  using namespace std::chrono_literals;
  const TinyFolder folder;
  // The first step takes minutes.
  Background program(folder.train("run", "--accumulate 1000000"));
  while (program.is_running() && !std::filesystem::exists(folder / "run/metrics.jsonl")) {
    std::this_thread::sleep_for(2ms);
  }
  program.send(SIGTERM);
  std::this_thread::sleep_for(100ms);
  CHECK(program.is_running());
  // Signals that are sent while one is pending do not count.
  for (int i = 0; i < 100 && program.is_running(); ++i) {
    program.send(SIGTERM);
    std::this_thread::sleep_for(200ms);
  }
  REQUIRE_FALSE(program.is_running());
  CHECK(program.finish().status == -1);
}
