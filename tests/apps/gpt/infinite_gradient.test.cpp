// SPDX-License-Identifier: MIT
#include <filesystem>

#include "apps/compare_runs.h"
#include "apps/program.h"
#include "apps/tiny_run.h"
#include "mini/safetensors.h"
#include "support/support.h"

using namespace mini::test;

// Clipping divides by the gradient norm. With an infinite norm all gradients would become 0, and
// training would go on without an effect.
TEST_CASE("train_gpt ends with an error if the gradient norm is infinite and no number is NaN",
          "[app][train_gpt]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("run", "--steps 20 --eval-every 20")).status == 0);
  const std::filesystem::path model = folder / "run/best/model.safetensors";
  auto file = mini::load_safetensors(model);
  // The loss is about 1e24. The gradients are finite too, but not their squares.
  file.tensors["transformer.ln_f.weight"].mul_(1e25);
  mini::save_safetensors(model, file.tensors, file.metadata);

  const Run failed =
      run("train_gpt --data " + folder.path_of("text.txt") + " --output " + folder.path_of("next") +
          " --init-from " + folder.path_of("run") + " --steps 3 --batch-size 4 --threads 1");
  CHECK(failed.status == 1);
  CHECK_THAT(failed.err, ContainsSubstring("step 1: expected finite numbers, got loss "));
  CHECK_THAT(failed.err, ContainsSubstring(" and gradient norm inf;"));
  CHECK_THAT(failed.err, !ContainsSubstring("nan"));
  CHECK(saved_step(folder / "next/last") == 0);
}
