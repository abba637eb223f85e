// SPDX-License-Identifier: MIT
#include "mini/text.h"

#include <sys/resource.h>

#include <csignal>
#include <string>
#include <vector>

#include "mini/safetensors.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/support.h"

using mini::Batch;
using mini::for_each_window;
using mini::RandomWindows;
using mini::read_tokens;
using mini::split_tokens;
using mini::TextFile;
using mini::Tokenizer;
using mini::write_tokens;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::error_of;
using mini::test::in_child;
using mini::test::private_memory;
using mini::test::read_file;
using mini::test::require_error;
using mini::test::TemporaryFolder;
using mini::test::write_file;

namespace {

/// `count` different characters of one to four bytes.
std::string characters(int64_t count) {
  std::string text;
  for (char32_t c = 0x20; count > 0; ++c) {
    if (c >= 0xd800 && c < 0xe000) continue;
    const auto tail = [&](unsigned shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else if (c < 0x800) {
      text += {static_cast<char>(0xc0 | c >> 6), tail(0)};
    } else if (c < 0x10000) {
      text += {static_cast<char>(0xe0 | c >> 12), tail(6), tail(0)};
    } else {
      text += {static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0)};
    }
    --count;
  }
  return text;
}

std::vector<Batch> windows_of(const at::Tensor& tokens, int64_t batch_size, int64_t block_size) {
  std::vector<Batch> batches;
  for_each_window(tokens, batch_size, block_size,
                  [&](const Batch& batch) { batches.push_back(batch); });
  return batches;
}

}  // namespace

TEST_CASE("the bytes of a text are those of its file", "[text]") {
  const TemporaryFolder folder;
  write_file(folder / "a", "tö be\n");
  const TextFile text(folder / "a");
  std::filesystem::remove(folder / "a");
  CHECK(text.bytes() == "tö be\n");
}

TEST_CASE("what is no text is refused with its path", "[text]") {
  const TemporaryFolder folder;
  write_file(folder / "empty", "");
  CHECK_THAT(error_of([&] { TextFile(folder / "empty"); }),
             ContainsSubstring("TextFile: '" + (folder / "empty").string() + "' is empty"));
  CHECK_THAT(error_of([&] { TextFile(folder / "none"); }),
             ContainsSubstring("TextFile: cannot read '" + (folder / "none").string() +
                               "': No such file or directory"));
  CHECK_THAT(error_of([&] { TextFile(folder.path()); }),
             ContainsSubstring("TextFile: '" + folder.path().string() + "' is not a regular file"));
}

TEST_CASE("tokens come back from their file", "[text]") {
  const TemporaryFolder folder;
  const int64_t vocab_size = GENERATE(1, 2, 65'535, 65'536, 65'537);
  INFO(vocab_size);
  const std::string text = characters(vocab_size);
  const Tokenizer tokenizer = Tokenizer::characters(text);
  REQUIRE(tokenizer.vocab_size() == vocab_size);
  write_tokens(folder / "tokens", text, tokenizer);
  const at::Tensor tokens = read_tokens(folder / "tokens", vocab_size);
  CHECK(tokens.scalar_type() == (vocab_size <= 65'536 ? at::kUInt16 : at::kUInt32));
  CHECK_THAT(tokens.to(at::kLong), Equals(at::arange(vocab_size)));  // longer than one piece
  CHECK(folder.entries() == std::set<std::string>{"tokens"});
}

TEST_CASE("a token file is a safetensors file", "[text]") {
  const TemporaryFolder folder;
  write_tokens(folder / "tokens", "abca", Tokenizer::characters("abc"));
  const auto file = mini::load_safetensors(folder / "tokens");
  CHECK_THAT(file.tensors["tokens"].to(at::kLong), Equals(torch::tensor({0, 1, 2, 0})));
  CHECK(file.metadata == std::map<std::string, std::string>{{"vocab_size", "3"}});
}

TEST_CASE("a large text takes no memory", "[text]") {
  constexpr int64_t kBytes = 32 << 20;
  const TemporaryFolder folder;
  write_file(folder / "text", std::string(kBytes, 'a'));
  const int64_t before = private_memory();
  const TextFile text(folder / "text");
  write_tokens(folder / "tokens", text.bytes(), Tokenizer::bytes());
  const at::Tensor tokens = read_tokens(folder / "tokens", 256);
  RandomWindows windows(tokens, 4, 64, 1);
  CHECK_THAT(windows.next().inputs, Equals(at::full({4, 64}, 'a', at::kLong)));
  CHECK(tokens.size(0) == kBytes);
  CHECK(private_memory() - before < kBytes / 8);
}

TEST_CASE("a file that holds other tokens is refused", "[text]") {
  using Tensors = torch::OrderedDict<std::string, at::Tensor>;
  const TemporaryFolder folder;
  write_tokens(folder / "tokens", "abca", Tokenizer::characters("abc"));
  CHECK_THAT(error_of([&] { read_tokens(folder / "tokens", 4); }),
             ContainsSubstring("expected tokens of a vocabulary of 4, got 3"));
  const std::string whole = read_file(folder / "tokens");
  write_file(folder / "cut", whole.substr(0, whole.size() - 1));
  CHECK_THAT(error_of([&] { read_tokens(folder / "cut", 3); }), ContainsSubstring("/cut: "));

  const auto error = [&](const std::string& name, const at::Tensor& tensor,
                         const std::map<std::string, std::string>& metadata) {
    Tensors tensors;
    tensors.insert(name, tensor);
    mini::save_safetensors(folder / "other", tensors, metadata);
    return error_of([&] { read_tokens(folder / "other", 3); });
  };
  const at::Tensor tokens = at::zeros({4}, at::kUInt16);
  const std::string expected = "/other: expected one tensor 'tokens' (N) of U16 or U32";
  CHECK_THAT(error("words", tokens, {{"vocab_size", "3"}}), ContainsSubstring(expected));
  CHECK_THAT(error("tokens", at::zeros({4}), {{"vocab_size", "3"}}), ContainsSubstring(expected));
  CHECK_THAT(error("tokens", at::zeros({2, 2}, at::kUInt16), {{"vocab_size", "3"}}),
             ContainsSubstring(expected));
  CHECK_THAT(error("tokens", tokens, {}), ContainsSubstring("a vocabulary of 3, got none"));
  CHECK(error("tokens", tokens, {{"vocab_size", "3"}}).empty());
}

TEST_CASE("tokens that cannot be written leave the old file", "[text]") {
  const TemporaryFolder folder;
  const Tokenizer tokenizer = Tokenizer::characters("abc");
  write_tokens(folder / "tokens", "abc", tokenizer);
  CHECK_THAT(error_of([&] { write_tokens(folder / "tokens", "abd", tokenizer); }),
             ContainsSubstring("'d' (U+0064) at byte 2"));
  const int full = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1024, 1024};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const std::string error =
        error_of([&] { write_tokens(folder / "tokens", std::string(4096, 'a'), tokenizer); });
    require_error(error, "write_tokens: cannot write");
    require_error(error, "File too large");
  });
  CHECK(full == 0);
  CHECK(read_tokens(folder / "tokens", 3).size(0) == 3);
}

TEST_CASE("nine tenths are for training, the rest for validation", "[text]") {
  const auto sizes = [](int64_t count) {
    const auto [train, validation] = split_tokens(at::arange(count));
    CHECK_THAT(at::cat({train, validation}), Equals(at::arange(count)));
    return std::pair(train.size(0), validation.size(0));
  };
  CHECK(sizes(0) == std::pair<int64_t, int64_t>(0, 0));
  CHECK(sizes(1) == std::pair<int64_t, int64_t>(0, 1));
  CHECK(sizes(10) == std::pair<int64_t, int64_t>(9, 1));
  CHECK(sizes(19) == std::pair<int64_t, int64_t>(17, 2));
  // The parts that nanoGPT's prepare.py makes of tinyshakespeare.
  CHECK(sizes(1'115'394) == std::pair<int64_t, int64_t>(1'003'854, 111'540));
  CHECK_THAT(error_of([] {
               split_tokens(at::zeros({2, 2}));
             }),
             ContainsSubstring("split_tokens: expected tokens (N)"));
}

TEST_CASE("random windows are pieces of the text with what follows", "[text]") {
  RandomWindows windows(at::arange(100).to(at::kUInt16), 8, 5, 1);
  for (int i = 0; i < 20; ++i) {
    const Batch batch = windows.next();
    REQUIRE(batch.inputs.sizes() == at::IntArrayRef({8, 5}));
    CHECK(batch.inputs.scalar_type() == at::kLong);
    CHECK_THAT(batch.targets, Equals(batch.inputs + 1));
    CHECK_THAT(batch.inputs, Equals(batch.inputs.narrow(1, 0, 1) + at::arange(5)));
  }
}

TEST_CASE("random windows begin in every place, equally often", "[text]") {
  constexpr int64_t kPlaces = 4;
  RandomWindows windows(at::arange(kPlaces + 3), 1000, 3, 7);
  at::Tensor counts = at::zeros({kPlaces}, at::kLong);
  for (int i = 0; i < 10; ++i) {
    const at::Tensor begins = windows.next().inputs.select(1, 0);
    CHECK(begins.max().item<int64_t>() < kPlaces);
    counts += at::bincount(begins, {}, kPlaces);
  }
  // Five standard deviations of a binomial of 10,000 draws at 1/4.
  CHECK((counts - 2500).abs().max().item<int64_t>() < 5 * 43);
}

TEST_CASE("random windows follow their own generator alone", "[text]") {
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

TEST_CASE("four small batches are the windows of one large one", "[text]") {
  RandomWindows small(at::arange(1000), 3, 8, 5), large(at::arange(1000), 12, 8, 5);
  std::vector<at::Tensor> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(small.next().inputs);
  CHECK_THAT(at::cat(batches), Equals(large.next().inputs));
}

TEST_CASE("evaluation takes each target once, in order", "[text]") {
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

TEST_CASE("evaluation goes in full batches, full windows, and a shorter one", "[text]") {
  const auto batches = windows_of(at::arange(24), 2, 4);  // 23 targets: 5 windows of 4, and 3
  REQUIRE(batches.size() == 4);
  CHECK(batches[0].inputs.sizes() == at::IntArrayRef({2, 4}));
  CHECK(batches[1].inputs.sizes() == at::IntArrayRef({2, 4}));
  CHECK(batches[2].inputs.sizes() == at::IntArrayRef({1, 4}));
  CHECK(batches[3].inputs.sizes() == at::IntArrayRef({1, 3}));
  CHECK_THAT(batches[1].targets, Equals(torch::tensor({{9, 10, 11, 12}, {13, 14, 15, 16}})));
}

TEST_CASE("windows that cannot be are refused with both numbers", "[text]") {
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
  CHECK_THAT(error(at::Tensor(), 1, 4), ContainsSubstring("got none"));

  CHECK_THAT(error_of([] { windows_of(at::arange(1), 1, 4); }),
             ContainsSubstring("for_each_window: expected at least 2 tokens, got 1"));
  CHECK_THAT(error_of([] { windows_of(at::arange(9), 1, -4); }),
             ContainsSubstring("for_each_window: expected batch_size and block_size above 0"));
}
