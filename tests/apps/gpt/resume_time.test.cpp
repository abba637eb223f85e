// SPDX-License-Identifier: MIT
#include <csignal>
#include <nlohmann/json.hpp>

#include "apps/compare_runs.h"
#include "apps/program.h"
#include "apps/tiny_run.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

TEST_CASE("train_gpt --resume adds its time to that of the steps before", "[app][train_gpt]") {
  const TinyFolder folder;
  Background stopped(folder.train("run", "--steps 100000 --eval-every 100000"));
  wait_for_steps(stopped, folder / "run", 1);
  stopped.send(SIGTERM);
  REQUIRE(stopped.finish().status == 0);
  const std::size_t steps = lines_of_metrics(folder / "run");

  const auto state = folder / "run/last/state.json";
  json saved = json::parse(read_file(state));
  saved["seconds"] = 1000;
  write_file(state, saved.dump());
  Background resumed(folder.resume("run"));
  wait_for_steps(resumed, folder / "run", steps + 1);
  resumed.send(SIGTERM);
  REQUIRE(resumed.finish().status == 0);
  const auto metrics = folder.metrics("run");
  REQUIRE(metrics.size() > steps);
  CHECK(metrics[steps]["seconds"] > 1000.0);
  CHECK(metrics[steps]["seconds"] < 2000.0);
}
