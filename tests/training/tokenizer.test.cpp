// SPDX-License-Identifier: MIT
#include "mini/tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "support/error_of.h"
#include "support/files.h"
#include "support/support.h"

using mini::Tokenizer;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::error_of;
using mini::test::read_file;
using mini::test::TemporaryFolder;
using mini::test::write_file;

TEST_CASE("Tokenizer::characters numbers characters in code point order", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::characters("hé😀h\nz");
  CHECK(tokenizer.vocab_size() == 5);
  CHECK_THAT(tokenizer.encode("\nhzé😀"), Equals(torch::tensor({0, 1, 2, 3, 4})));
  CHECK(tokenizer.encode("h").scalar_type() == at::kLong);
  CHECK(tokenizer.encode("").sizes() == at::IntArrayRef({0}));
  CHECK(tokenizer.decode(torch::tensor({4, 1, 3})) == "😀hé");
}

TEST_CASE("Tokenizer::characters gives nanoGPT's ids", "[tokenizer]") {
  // nanoGPT's prepare.py numbers sorted(set(text)).
  const Tokenizer tokenizer = Tokenizer::characters("First Citizen:\n");
  CHECK_THAT(tokenizer.encode("First"), Equals(torch::tensor({4, 6, 8, 9, 10})));
}

TEST_CASE("Tokenizer::bytes encodes and decodes every byte", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::bytes();
  CHECK(tokenizer.vocab_size() == 256);
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK_THAT(tokenizer.encode(all), Equals(at::arange(256)));
  CHECK(tokenizer.decode(at::arange(256)) == all);
  CHECK_THAT(tokenizer.encode("é"), Equals(torch::tensor({0xc3, 0xa9})));
}

TEST_CASE("Tokenizer::ids encodes and decodes decimal ids", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::ids(101);
  CHECK(tokenizer.vocab_size() == 101);
  CHECK_THAT(tokenizer.encode("0 7\n\t100\r\n"), Equals(torch::tensor({0, 7, 100})));
  CHECK_THAT(tokenizer.encode(" 07"), Equals(torch::tensor({7})));
  CHECK(tokenizer.encode("").sizes() == at::IntArrayRef({0}));
  CHECK(tokenizer.decode(torch::tensor({0, 7, 100})) == "0 7 100");
  CHECK(tokenizer.separator() == " ");
  CHECK(Tokenizer::bytes().separator().empty());
}

TEST_CASE("messages of Tokenizer show characters that cannot be seen", "[tokenizer]") {
  CHECK_THAT(error_of([&] { Tokenizer::ids(101).encode("\ufeff1 2"); }),
             ContainsSubstring("expected a token id from 0 to 100, got '<U+FEFF>1' at byte 0"));
  CHECK_THAT(error_of([&] { Tokenizer::characters("ab").encode("a\ufeff"); }),
             ContainsSubstring("got '<U+FEFF>' (U+FEFF) at byte 1"));
}

TEST_CASE("Tokenizer::ids refuses text that is not an id of the vocabulary", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::ids(101);
  const auto error = [&](const std::string& text) {
    return error_of([&] { tokenizer.encode(text); });
  };
  for (const char* bad : {"101", "-1", "x", "1.5", "99999999999999999999", "+1"}) {
    CHECK_THAT(error(std::string("1 2 ") + bad + " 3"),
               ContainsSubstring("Tokenizer: expected a token id from 0 to 100, got '" +
                                 std::string(bad) + "' at byte 4"));
  }
  CHECK_THAT(error(" \n"), ContainsSubstring("got '' at byte 2"));
  CHECK_THAT(error(std::string(1000, '1')),
             ContainsSubstring(std::string(20, '1') + "' at byte 0"));
  CHECK_THAT(error_of([&] { tokenizer.decode(torch::tensor({101})); }),
             ContainsSubstring("expected token ids from 0 to 100, got 101"));
  CHECK_THAT(error_of([] { Tokenizer::ids(0); }),
             ContainsSubstring("Tokenizer::ids: expected a vocab_size from 1 to 2^31 - 1, got 0"));
}

TEST_CASE("decode accepts any integer dtype, shape and strides", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::characters("abc");
  for (const at::ScalarType type : {at::kByte, at::kUInt16, at::kInt, at::kLong}) {
    CHECK(tokenizer.decode(torch::tensor({0, 1, 2, 1}).view({2, 2}).to(type)) == "abcb");
  }
  CHECK(tokenizer.decode(at::scalar_tensor(2, at::kLong)) == "c");
  CHECK(tokenizer.decode(torch::tensor({0, 1, 2, 1}).view({2, 2}).t()) == "acbb");
  CHECK(tokenizer.decode(at::empty({0}, at::kLong)).empty());
}

TEST_CASE("next_token returns one token and moves the offset to the next", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::characters("aé");
  std::size_t offset = 1;
  CHECK(tokenizer.next_token("aéa", offset) == 1);
  CHECK(offset == 3);
  CHECK(tokenizer.next_token("aéa", offset) == 0);
  CHECK(offset == 4);
}

TEST_CASE("a loaded tokenizer equals the saved one", "[tokenizer]") {
  const TemporaryFolder folder;
  const std::string text = std::string("\0\t\"\\", 4) + "aé😀";
  Tokenizer::characters(text).save(folder / "characters.json");
  const Tokenizer characters = Tokenizer::load(folder / "characters.json");
  CHECK(characters.vocab_size() == 7);
  CHECK_THAT(characters.encode(text), Equals(Tokenizer::characters(text).encode(text)));
  CHECK(characters.decode(characters.encode(text)) == text);

  Tokenizer::bytes().save(folder / "bytes.json");
  CHECK(Tokenizer::load(folder / "bytes.json").vocab_size() == 256);
  CHECK(Tokenizer::load(folder / "bytes.json").decode(torch::tensor({0xff})) == "\xff");

  Tokenizer::ids(50257).save(folder / "ids.json");
  CHECK(read_file(folder / "ids.json") == "{\n \"type\": \"ids\",\n \"vocab_size\": 50257\n}");
  CHECK(Tokenizer::load(folder / "ids.json").vocab_size() == 50257);
  CHECK(Tokenizer::load(folder / "ids.json").decode(torch::tensor({50256})) == "50256");
  CHECK(folder.entries() == std::set<std::string>{"bytes.json", "characters.json", "ids.json"});
}

TEST_CASE("Tokenizer::load reads a vocabulary written by hand, in its order", "[tokenizer]") {
  const TemporaryFolder folder;
  write_file(folder / "a", R"({"type": "characters", "vocabulary": ["z", "\u00e9", "a"]})");
  CHECK_THAT(Tokenizer::load(folder / "a").encode("aéz"), Equals(torch::tensor({2, 1, 0})));
}

TEST_CASE("Tokenizer::load refuses an invalid file with its path", "[tokenizer]") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& text) {
    write_file(folder / "bad", text);
    return error_of([&] { Tokenizer::load(folder / "bad"); });
  };
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"", "is not JSON"},
      {"[]", "expected a member of an object"},
      {"{}", "type: expected a value"},
      {R"({"type": "words"})", "expected a type characters, bytes or ids, got \"words\""},
      {R"({"type": "ids"})", "vocab_size: expected a value"},
      {R"({"type": "ids", "vocab_size": 0})", "expected a vocab_size above 0, got 0"},
      {R"({"type": "ids", "vocab_size": 4294967296})", "vocab_size: expected a whole number"},
      {R"({"type": "characters"})", "vocabulary: expected a value"},
      {R"({"type": "characters", "vocabulary": []})", "expected a list of characters, got []"},
      {R"({"type": "characters", "vocabulary": {"a": "b"}})", "expected a list of characters"},
      {R"({"type": "characters", "vocabulary": [1]})",
       "expected a vocabulary of characters, got 1"},
      {R"({"type": "characters", "vocabulary": ["ab"]})", "single characters, got \"ab\""},
      {R"({"type": "characters", "vocabulary": [""]})", "single characters, got \"\""},
      {R"({"type": "characters", "vocabulary": ["é", "é"]})", "distinct characters, got \"é\""},
  };
  for (const auto& [text, fragment] : bad) {
    INFO(text);
    CHECK_THAT(error(text), ContainsSubstring("Tokenizer::load: '" + (folder / "bad").string()));
    CHECK_THAT(error(text), ContainsSubstring(fragment));
  }
  CHECK_THAT(error_of([&] { Tokenizer::load(folder / "none"); }),
             ContainsSubstring("No such file or directory"));
  CHECK_THAT(error_of([&] { Tokenizer::bytes().save(folder / "none/a"); }),
             ContainsSubstring("Tokenizer::save: cannot write"));
}

TEST_CASE("encode names an unknown character and its offset", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::characters("abc");
  CHECK_THAT(error_of([&] { tokenizer.encode("abécd"); }),
             ContainsSubstring("Tokenizer: expected one of the 3 characters of the vocabulary, got "
                               "'é' (U+00E9) at byte 2"));
  CHECK_THAT(error_of([&] { tokenizer.encode("ab\n"); }), ContainsSubstring("(U+000A) at byte 2"));
  CHECK_THAT(error_of([&] { tokenizer.encode("`"); }), ContainsSubstring("(U+0060) at byte 0"));
}

TEST_CASE("text that is not UTF-8 is refused with the offset", "[tokenizer]") {
  CHECK_THAT(error_of([] { Tokenizer::characters("ab\xff"); }),
             ContainsSubstring("expected UTF-8, got an invalid sequence at byte 2"));
  CHECK_THAT(error_of([] { Tokenizer::characters("aé\xc3"); }),
             ContainsSubstring("expected UTF-8, got an incomplete character at byte 3"));
  CHECK_THAT(error_of([] {
               Tokenizer::characters(
                   "\xff\xfe"
                   "a");
             }),
             ContainsSubstring("expected UTF-8, got the byte-order mark of UTF-16 at byte 0"));
  CHECK_THAT(error_of([] { Tokenizer::characters("a").encode("aa\xed\xa0\x80"); }),
             ContainsSubstring("at byte 2"));
  CHECK_THAT(
      error_of([] { Tokenizer::characters(""); }),
      ContainsSubstring(
          "Tokenizer::characters: expected a text of at least one character, got an empty text"));
}

TEST_CASE("decode names an invalid id and the valid range", "[tokenizer]") {
  const Tokenizer tokenizer = Tokenizer::characters("abc");
  CHECK_THAT(error_of([&] {
               tokenizer.decode(torch::tensor({0, 3}));
             }),
             ContainsSubstring("Tokenizer::decode: expected token ids from 0 to 2, got 3"));
  CHECK_THAT(error_of([&] { tokenizer.decode(torch::tensor({-1})); }), ContainsSubstring("got -1"));
  CHECK_THAT(error_of([&] { tokenizer.decode(torch::tensor({0.5})); }),
             ContainsSubstring("expected tokens of an integer type, got Float"));
  CHECK_THAT(error_of([&] { tokenizer.decode(at::Tensor()); }),
             ContainsSubstring("got an undefined tensor"));
}
