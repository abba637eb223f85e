// SPDX-License-Identifier: MIT
#include "mini/schedule.h"

#include <cmath>
#include <sstream>
#include <vector>

#include "support/error_of.h"
#include "support/support.h"

using mini::LearningRateSchedule;
using mini::ScheduleOptions;
using mini::test::AllClose;
using mini::test::ContainsSubstring;
using mini::test::error_of;

namespace {

/// An optimizer with one group, of one parameter, for each of `rates`.
torch::optim::SGD optimizer_with(const std::vector<double>& rates) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const double rate : rates) {
    groups.emplace_back(std::vector<at::Tensor>{torch::ones({1}, torch::requires_grad())},
                        std::make_unique<torch::optim::SGDOptions>(rate));
  }
  return torch::optim::SGD(groups, torch::optim::SGDOptions(0.5));
}

double rate_of(torch::optim::Optimizer& optimizer, std::size_t group = 0) {
  return optimizer.param_groups()[group].options().get_lr();
}

/// The learning rates of the first `steps` steps of a training loop.
at::Tensor rates(const ScheduleOptions& options, int steps, double base_rate = 1.0) {
  auto optimizer = optimizer_with({base_rate});
  LearningRateSchedule schedule(optimizer, options);
  std::vector<double> seen;
  for (int step = 0; step < steps; ++step) {
    seen.push_back(rate_of(optimizer));
    schedule.step();
  }
  return torch::tensor(seen, at::kDouble);
}

}  // namespace

TEST_CASE("the learning rate warms up, follows a cosine and stays at the minimum", "[schedule]") {
  CHECK_THAT(rates({.warmup_steps = 4, .decay_end = 12, .min_factor = 0.1}, 14),
             AllClose(torch::tensor({0.2, 0.4, 0.6, 0.8, 1.0, 0.965746, 0.868198, 0.722208, 0.55,
                                     0.377792, 0.231802, 0.134254, 0.1, 0.1},
                                    at::kDouble),
                      0, 5e-7));
}

TEST_CASE("without decay_end the learning rate is constant after the warm-up", "[schedule]") {
  CHECK_THAT(rates({.warmup_steps = 3}, 6, 2.0),
             AllClose(torch::tensor({0.5, 1.0, 1.5, 2.0, 2.0, 2.0}, at::kDouble), 0, 1e-15));
  CHECK_THAT(rates({}, 3), AllClose(torch::ones({3}, at::kDouble), 0, 0));
}

TEST_CASE("a schedule without warm-up or without decay does not divide by zero", "[schedule]") {
  CHECK_THAT(rates({.decay_end = 2, .min_factor = 0.0}, 4),
             AllClose(torch::tensor({1.0, 0.5, 0.0, 0.0}, at::kDouble), 0, 1e-15));
  CHECK_THAT(rates({.warmup_steps = 2, .decay_end = 2, .min_factor = 0.25}, 4),
             AllClose(torch::tensor({1.0 / 3, 2.0 / 3, 0.25, 0.25}, at::kDouble), 0, 1e-15));
  CHECK_THAT(rates({.decay_end = 0, .min_factor = 0.25}, 2),
             AllClose(torch::tensor({0.25, 0.25}, at::kDouble), 0, 0));
}

TEST_CASE("the first update uses the learning rate of step 0", "[schedule]") {
  auto optimizer = optimizer_with({1.0});
  LearningRateSchedule schedule(optimizer, {.warmup_steps = 99, .decay_end = 1000});
  const at::Tensor weight = optimizer.param_groups()[0].params()[0];
  weight.sum().backward();
  optimizer.step();
  CHECK(std::abs(weight.item<double>() - 0.99) < 1e-7);
}

TEST_CASE("set_current_step gives the same learning rates as making the steps", "[schedule]") {
  const ScheduleOptions options = {.warmup_steps = 4, .decay_end = 12, .min_factor = 0.1};
  const at::Tensor expected = rates(options, 14);
  for (int64_t step = 0; step < 14; ++step) {
    auto optimizer = optimizer_with({1.0});
    LearningRateSchedule schedule(optimizer, options);
    CHECK(schedule.current_step() == 0);
    schedule.set_current_step(step);
    CHECK(schedule.current_step() == step);
    CHECK(rate_of(optimizer) == expected[step].item<double>());
    CHECK(schedule.factor(step) == expected[step].item<double>());
    if (step == 13) break;
    schedule.step();
    CHECK(schedule.current_step() == step + 1);
    CHECK(rate_of(optimizer) == expected[step + 1].item<double>());
  }
}

TEST_CASE("the learning rates of all groups keep their ratios", "[schedule]") {
  auto optimizer = optimizer_with({0.3, 0.03, 1.5});
  LearningRateSchedule schedule(optimizer, {.warmup_steps = 4, .decay_end = 12, .min_factor = 0.1});
  for (int step = 0; step < 14; ++step) {
    CHECK(std::abs(rate_of(optimizer, 0) - 0.3 * schedule.factor(step)) < 1e-15);
    CHECK(std::abs(rate_of(optimizer, 1) - 0.03 * schedule.factor(step)) < 1e-15);
    CHECK(std::abs(rate_of(optimizer, 2) - 1.5 * schedule.factor(step)) < 1e-15);
    schedule.step();
  }
}

TEST_CASE("a parameter group added later follows the schedule from the next step on",
          "[schedule]") {
  const ScheduleOptions options = {.warmup_steps = 4, .decay_end = 12, .min_factor = 0.1};
  for (const bool stepwise : {true, false}) {
    auto optimizer = optimizer_with({1.0});
    LearningRateSchedule schedule(optimizer, options);
    schedule.set_current_step(7);
    auto other = optimizer_with({2.0});
    optimizer.add_param_group(other.param_groups()[0]);
    CHECK(rate_of(optimizer, 1) == 2.0);
    stepwise ? schedule.step() : schedule.set_current_step(8);
    CHECK(std::abs(rate_of(optimizer, 0) - 0.55) < 1e-12);
    CHECK(std::abs(rate_of(optimizer, 1) - 1.10) < 1e-12);
    schedule.set_current_step(12);
    CHECK(std::abs(rate_of(optimizer, 0) - 0.1) < 1e-12);
    CHECK(std::abs(rate_of(optimizer, 1) - 0.2) < 1e-12);
  }
}

TEST_CASE("a schedule keeps its base rates when an optimizer's state is loaded", "[schedule]") {
  const ScheduleOptions options = {.warmup_steps = 4, .decay_end = 12, .min_factor = 0.1};
  std::stringstream file;
  {
    auto optimizer = optimizer_with({1.0, 2.0});
    LearningRateSchedule schedule(optimizer, options);
    schedule.set_current_step(8);
    torch::save(optimizer, file);  // with the rates of step 8
  }
  auto optimizer = optimizer_with({1.0, 2.0});
  SECTION("a schedule made before loading") {
    LearningRateSchedule schedule(optimizer, options);
    torch::load(optimizer, file);
    schedule.set_current_step(8);
  }
  SECTION("a schedule made after loading, with base rates") {
    torch::load(optimizer, file);
    ScheduleOptions given = options;
    given.base_rates = {1.0, 2.0};
    LearningRateSchedule schedule(optimizer, given);
    schedule.set_current_step(8);
  }
  CHECK(std::abs(rate_of(optimizer, 0) - 0.55) < 1e-12);
  CHECK(std::abs(rate_of(optimizer, 1) - 1.10) < 1e-12);
}

TEST_CASE("LearningRateSchedule can be used as a torch::optim::LRScheduler", "[schedule]") {
  auto optimizer = optimizer_with({1.0});
  const std::unique_ptr<torch::optim::LRScheduler> scheduler =
      std::make_unique<LearningRateSchedule>(optimizer, ScheduleOptions{.warmup_steps = 1});
  CHECK(rate_of(optimizer) == 0.5);
  scheduler->step();
  CHECK(rate_of(optimizer) == 1.0);
}

TEST_CASE("LearningRateSchedule refuses invalid options and steps", "[schedule]") {
  auto optimizer = optimizer_with({1.0});
  const auto error = [&](const ScheduleOptions& options) {
    return error_of([&] { LearningRateSchedule(optimizer, options); });
  };
  CHECK_THAT(error({.warmup_steps = 5, .decay_end = 4}),
             ContainsSubstring("expected a decay_end of at least warmup_steps 5, got 4"));
  CHECK_THAT(error({.warmup_steps = -1}), ContainsSubstring("warmup_steps of at least 0, got -1"));
  CHECK_THAT(error({.decay_end = -1}), ContainsSubstring("at least warmup_steps 0, got -1"));
  for (const double factor : {-0.1, 1.1, std::nan("")}) {
    CHECK_THAT(error({.min_factor = factor}), ContainsSubstring("min_factor in [0, 1], got "));
  }
  CHECK_THAT(error({.base_rates = {1.0, 2.0}}),
             ContainsSubstring("one base rate for each of the 1 parameter groups, got 2"));
  CHECK_THAT(error({.base_rates = {std::nan("")}}),
             ContainsSubstring("expected finite base rates, got nan"));
  LearningRateSchedule schedule(optimizer, {});
  CHECK_THAT(error_of([&] { schedule.set_current_step(-1); }),
             ContainsSubstring("expected a step from 0 to 4294967294, got -1"));
  CHECK_THAT(error_of([&] { schedule.set_current_step(int64_t{1} << 32); }),
             ContainsSubstring("got 4294967296"));
}
