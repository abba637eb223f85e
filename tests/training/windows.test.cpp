// SPDX-License-Identifier: MIT
// Splits and windows of tokens.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "mini/text.h"
#include "support/error_of.h"
#include "support/support.h"

using mini::Batch;
using mini::for_each_window;
using mini::RandomWindows;
using mini::split_tokens;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::error_of;

namespace {

std::vector<Batch> windows_of(const at::Tensor& tokens, int64_t batch_size, int64_t block_size) {
  std::vector<Batch> batches;
  for_each_window(tokens, batch_size, block_size,
                  [&](const Batch& batch) { batches.push_back(batch); });
  return batches;
}

}  // namespace

TEST_CASE("split_tokens gives 90 % to training and the rest to validation", "[text]") {
  const auto sizes = [](int64_t count) {
    const auto [train, validation] = split_tokens(at::arange(count));
    CHECK_THAT(at::cat({train, validation}), Equals(at::arange(count)));
    return std::pair(train.size(0), validation.size(0));
  };
  CHECK(sizes(0) == std::pair<int64_t, int64_t>(0, 0));
  CHECK(sizes(1) == std::pair<int64_t, int64_t>(0, 1));
  CHECK(sizes(10) == std::pair<int64_t, int64_t>(9, 1));
  CHECK(sizes(19) == std::pair<int64_t, int64_t>(17, 2));
  // The sizes of tinyshakespeare's parts in nanoGPT's prepare.py.
  CHECK(sizes(1'115'394) == std::pair<int64_t, int64_t>(1'003'854, 111'540));
  CHECK_THAT(error_of([] {
               split_tokens(at::zeros({2, 2}));
             }),
             ContainsSubstring("split_tokens: expected tokens (N), got [2, 2]"));
}

TEST_CASE("RandomWindows returns windows and, as targets, the token after each input", "[text]") {
  RandomWindows windows(at::arange(100).to(at::kUInt16), 8, 5, 1);
  for (int i = 0; i < 20; ++i) {
    const Batch batch = windows.next();
    REQUIRE(batch.inputs.sizes() == at::IntArrayRef({8, 5}));
    CHECK(batch.inputs.scalar_type() == at::kLong);
    CHECK_THAT(batch.targets, Equals(batch.inputs + 1));
    CHECK_THAT(batch.inputs, Equals(batch.inputs.narrow(1, 0, 1) + at::arange(5)));
  }
}

TEST_CASE("RandomWindows draws every place equally often", "[text]") {
  constexpr int64_t kPlaces = 4;
  RandomWindows windows(at::arange(kPlaces + 3), 1000, 3, 7);
  at::Tensor counts = at::zeros({kPlaces}, at::kLong);
  for (int i = 0; i < 10; ++i) {
    const at::Tensor begins = windows.next().inputs.select(1, 0);
    CHECK(begins.max().item<int64_t>() < kPlaces);
    counts += at::bincount(begins, {}, kPlaces);
  }
  // Five standard deviations of a binomial distribution: 10,000 draws with probability 1/4.
  CHECK((counts - 2500).abs().max().item<int64_t>() < 5 * 43);
}

TEST_CASE("RandomWindows draws only from its own generator", "[text]") {
  const at::Tensor tokens = at::arange(1000);
  const auto next = [](RandomWindows& windows) { return windows.next().inputs; };
  RandomWindows first(tokens, 4, 8, 5), second(tokens, 4, 8, 5), other(tokens, 4, 8, 6);
  torch::manual_seed(0);
  const at::Tensor before = at::rand({1});
  torch::manual_seed(0);
  const at::Tensor batch = next(first);
  CHECK_THAT(at::rand({1}), Equals(before));
  CHECK_THAT(next(second), Equals(batch));
  CHECK_FALSE(at::equal(next(other), batch));
  CHECK_FALSE(at::equal(next(first), batch));

  const at::Tensor state = first.generator().get_state();
  const at::Tensor third = next(first);
  RandomWindows resumed(tokens, 4, 8, 99);
  resumed.generator().set_state(state);
  CHECK_THAT(next(resumed), Equals(third));
  CHECK_THAT(next(resumed), Equals(next(first)));
}

TEST_CASE("RandomWindows draws the same windows in small batches as in a large one", "[text]") {
  RandomWindows small(at::arange(1000), 3, 8, 5), large(at::arange(1000), 12, 8, 5);
  std::vector<at::Tensor> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(small.next().inputs);
  CHECK_THAT(at::cat(batches), Equals(large.next().inputs));
}

TEST_CASE("for_each_window visits each target once, in order", "[text]") {
  for (const int64_t count : {2, 3, 9, 10, 17, 33, 64, 65, 66, 100}) {
    for (const int64_t block_size : {1, 4, 8, 200}) {
      for (const int64_t batch_size : {1, 3, 100}) {
        INFO(count << " tokens, batch " << batch_size << ", block " << block_size);
        std::vector<at::Tensor> inputs, targets;
        for (const Batch& batch :
             windows_of(at::arange(count).to(at::kUInt16), batch_size, block_size)) {
          CHECK(batch.inputs.scalar_type() == at::kLong);
          CHECK(batch.inputs.sizes() == batch.targets.sizes());
          CHECK(batch.inputs.size(0) <= batch_size);
          CHECK(batch.inputs.size(1) <= block_size);
          inputs.push_back(batch.inputs.flatten());
          targets.push_back(batch.targets.flatten());
        }
        CHECK_THAT(at::cat(inputs), Equals(at::arange(count - 1)));
        CHECK_THAT(at::cat(targets), Equals(at::arange(1, count)));
      }
    }
  }
}

TEST_CASE("for_each_window visits full batches, then a smaller batch, then a shorter window",
          "[text]") {
  const auto batches = windows_of(at::arange(24), 2, 4);  // 23 targets: 5 windows of 4, and 3
  REQUIRE(batches.size() == 4);
  CHECK(batches[0].inputs.sizes() == at::IntArrayRef({2, 4}));
  CHECK(batches[1].inputs.sizes() == at::IntArrayRef({2, 4}));
  CHECK(batches[2].inputs.sizes() == at::IntArrayRef({1, 4}));
  CHECK(batches[3].inputs.sizes() == at::IntArrayRef({1, 3}));
  CHECK_THAT(batches[1].targets, Equals(torch::tensor({{9, 10, 11, 12}, {13, 14, 15, 16}})));
}

TEST_CASE("RandomWindows and for_each_window refuse invalid sizes and tokens", "[text]") {
  const auto error = [](const at::Tensor& tokens, int64_t batch_size, int64_t block_size) {
    return error_of([&] { RandomWindows(tokens, batch_size, block_size, 1); });
  };
  CHECK_THAT(error(at::arange(64), 1, 64),
             ContainsSubstring("RandomWindows: expected more tokens than block_size 64, got 64"));
  CHECK(error(at::arange(65), 1, 64).empty());
  CHECK_THAT(error(at::arange(64), 1, 0),
             ContainsSubstring("above 0, got batch_size 1 and block_size 0"));
  CHECK_THAT(error(at::arange(64), 0, 4), ContainsSubstring("got batch_size 0 and block_size 4"));
  CHECK_THAT(error(at::zeros({8, 8}, at::kLong), 1, 4),
             ContainsSubstring("expected tokens (N) of an integer type, got Long [8, 8]"));
  CHECK_THAT(error(at::zeros({8}), 1, 4), ContainsSubstring("got Float [8]"));
  CHECK_THAT(error(at::Tensor(), 1, 4), ContainsSubstring("got an undefined tensor"));

  CHECK_THAT(error_of([] { windows_of(at::arange(1), 1, 4); }),
             ContainsSubstring("for_each_window: expected at least 2 tokens, got 1"));
  CHECK_THAT(error_of([] { windows_of(at::arange(9), 1, -4); }),
             ContainsSubstring("for_each_window: expected batch_size and block_size above 0"));
}

TEST_CASE("for_each_window accepts the largest batch_size and block_size", "[text]") {
  std::vector<std::vector<int64_t>> shapes;
  const auto visit = [&](const mini::Batch& batch) {
    shapes.push_back(batch.inputs.sizes().vec());
    REQUIRE(shapes.size() < 10);
  };
  mini::for_each_window(at::arange(10), int64_t{1} << 62, 4, visit);  // the product is 2^64
  mini::for_each_window(at::arange(8), 1, std::numeric_limits<int64_t>::max(), visit);
  CHECK(shapes == std::vector<std::vector<int64_t>>{{2, 4}, {1, 1}, {1, 7}});
}
