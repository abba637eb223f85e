// SPDX-License-Identifier: MIT
// Text files and token files.
#include "mini/text.h"

#include <sys/resource.h>

#include <csignal>
#include <map>
#include <set>
#include <string>

#include "mini/safetensors.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/support.h"

using mini::RandomWindows;
using mini::read_tokens;
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

/// `count` distinct characters, of one to four bytes each.
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

}  // namespace

TEST_CASE("TextFile returns the bytes of its file, even after the file is removed", "[text]") {
  const TemporaryFolder folder;
  write_file(folder / "a", "tö be\n");
  const TextFile text(folder / "a");
  std::filesystem::remove(folder / "a");
  CHECK(text.bytes() == "tö be\n");
  CHECK(text.text() == "tö be\n");
}

TEST_CASE("TextFile::text has no byte-order mark at its start", "[text]") {
  const TemporaryFolder folder;
  write_file(folder / "a", "\ufeffa\ufeff");
  const TextFile file(folder / "a");
  CHECK(file.text() == "a\ufeff");
  CHECK(file.bytes() == "\ufeffa\ufeff");
}

TEST_CASE("TextFile refuses an empty file, a missing file and a folder", "[text]") {
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

TEST_CASE("read_tokens returns the tokens that write_tokens wrote", "[text]") {
  const TemporaryFolder folder;
  const int64_t vocab_size = GENERATE(1, 2, 65'535, 65'536, 65'537);
  INFO(vocab_size);
  const std::string text = characters(vocab_size);
  const Tokenizer tokenizer = Tokenizer::characters(text);
  REQUIRE(tokenizer.vocab_size() == vocab_size);
  write_tokens(folder / "tokens", text, tokenizer);
  const at::Tensor tokens = read_tokens(folder / "tokens", vocab_size);
  CHECK(tokens.scalar_type() == (vocab_size <= 65'536 ? at::kUInt16 : at::kUInt32));
  CHECK_THAT(tokens.to(at::kLong),
             Equals(at::arange(vocab_size)));  // from 65,536 on, more than one write
  CHECK(folder.entries() == std::set<std::string>{"tokens"});
}

TEST_CASE("a token file is a safetensors file", "[text]") {
  const TemporaryFolder folder;
  write_tokens(folder / "tokens", "abca", Tokenizer::characters("abc"));
  const auto file = mini::load_safetensors(folder / "tokens");
  CHECK_THAT(file.tensors["tokens"].to(at::kLong), Equals(torch::tensor({0, 1, 2, 0})));
  CHECK(file.metadata == std::map<std::string, std::string>{{"vocab_size", "3"}});
}

TEST_CASE("a large text is encoded and read without a copy in memory", "[text]") {
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

TEST_CASE("read_tokens refuses another format and another vocabulary", "[text]") {
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

TEST_CASE("a failed write_tokens leaves the old file unchanged", "[text]") {
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
