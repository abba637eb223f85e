// SPDX-License-Identifier: MIT
#include "files/json_file.h"

#include <string>

#include "support/files.h"
#include "support/support.h"

using mini::detail::Json;
using mini::detail::json_member;
using mini::detail::parse_json;
using mini::detail::read_json;
using mini::detail::write_json;
using mini::test::ContainsSubstring;
using mini::test::read_file;
using mini::test::TemporaryFolder;
using mini::test::write_file;

namespace {

template <typename Body>
std::string runtime_error_of(Body body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("read_json returns what write_json wrote, with the members in order", "[json_file]") {
  const TemporaryFolder folder;
  const Json json = {{"z", 1}, {"a", {0.1, "é\n", nullptr}}, {"big", 18446744073709551615U}};
  write_json(folder / "a.json", json);
  CHECK(read_json(folder / "a.json") == json);
  CHECK(read_json(folder / "a.json").dump() == json.dump());
}

TEST_CASE("read_json refuses a file that is cut off anywhere", "[json_file]") {
  const TemporaryFolder folder;
  write_json(folder / "a.json", {{"step", 12}, {"names", {"a", "b"}}});
  const std::string whole = read_file(folder / "a.json");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    write_file(folder / "cut", whole.substr(0, size));
    CHECK_THAT(runtime_error_of([&] { read_json(folder / "cut"); }),
               ContainsSubstring("'" + (folder / "cut").string() + "' is not JSON: "));
  }
}

TEST_CASE("errors of read_json and write_json contain the path and the reason", "[json_file]") {
  const TemporaryFolder folder;
  CHECK_THAT(runtime_error_of([&] { read_json(folder / "none"); }),
             ContainsSubstring("cannot read '" + (folder / "none").string() +
                               "': No such file or directory"));
  CHECK_THAT(runtime_error_of([&] { read_json(folder.path()); }),
             ContainsSubstring("is not a regular file"));
  write_file(folder / "nul", std::string("{}\0", 3));
  CHECK_THAT(runtime_error_of([&] { read_json(folder / "nul"); }), ContainsSubstring("NUL byte"));
  CHECK_THAT(runtime_error_of([&] { write_json(folder / "a", "\xff"); }),
             ContainsSubstring("cannot write '" + (folder / "a").string() + "': invalid UTF-8"));
  CHECK_THAT(runtime_error_of([&] { write_json(folder / "none/a", 1); }),
             ContainsSubstring("No such file or directory"));
  CHECK(folder.entries() == std::set<std::string>{"nul"});
}

TEST_CASE("read_json puts the path before the error of the function it calls", "[json_file]") {
  const TemporaryFolder folder;
  write_file(folder / "a", R"({"steps": 3})");
  const auto steps = [](const Json& json) { return json_member<int64_t>(json, "steps"); };
  CHECK(read_json(folder / "a", steps) == 3);
  const auto seed = [](const Json& json) { return json_member<int64_t>(json, "seed"); };
  CHECK_THAT(
      runtime_error_of([&] { read_json(folder / "a", seed); }),
      ContainsSubstring("'" + (folder / "a").string() + "': seed: expected a value, got null"));
}

TEST_CASE("parse_json refuses text that is nested deeper than 100 levels", "[json_file]") {
  const auto nested = [](std::size_t levels) {
    return std::string(levels, '[') + std::string(levels, ']');
  };
  CHECK(parse_json(nested(100)).is_array());
  // Without the limit, a million levels would overflow the stack.
  for (const std::size_t levels : {std::size_t{101}, std::size_t{1} << 20}) {
    CHECK(runtime_error_of([&] { parse_json(nested(levels)); }) ==
          "it is nested deeper than 100 levels");
  }
}

TEST_CASE("json_member requires the member and its type", "[json_file]") {
  const Json json = {
      {"yes", true},        {"whole", 7},        {"negative", -7},  {"half", 0.5},
      {"text", "7"},        {"list", {1}},       {"null", nullptr}, {"huge", 18446744073709551615U},
      {"low", -4294967291}, {"high", 4294967301}};
  CHECK(json_member<bool>(json, "yes"));
  CHECK(json_member<int64_t>(json, "negative") == -7);
  CHECK(json_member<int32_t>(json, "negative") == -7);
  CHECK(json_member<uint64_t>(json, "huge") == 18446744073709551615U);
  CHECK(json_member<double>(json, "half") == 0.5);
  CHECK(json_member<double>(json, "whole") == 7.0);
  CHECK(json_member<std::string>(json, "text") == "7");
  CHECK(json_member<Json>(json, "list") == Json({1}));

  const auto error = [&](auto type, const std::string& name) {
    return runtime_error_of([&] { json_member<decltype(type)>(json, name); });
  };
  CHECK(error(false, "whole") == "whole: expected true or false, got 7");
  CHECK(error(int64_t(), "half") == "half: expected a whole number, got 0.5");
  CHECK(error(int64_t(), "yes") == "yes: expected a whole number, got true");
  CHECK(error(int64_t(), "huge") == "huge: expected a whole number, got 18446744073709551615");
  CHECK(error(int32_t(), "low") == "low: expected a whole number, got -4294967291");
  CHECK(error(int32_t(), "high") == "high: expected a whole number, got 4294967301");
  CHECK(error(uint64_t(), "negative") == "negative: expected a whole number, got -7");
  CHECK(error(double(), "text") == "text: expected a number, got \"7\"");
  CHECK(error(std::string(), "null") == "null: expected a string, got null");
  CHECK(error(Json(), "text") == "text: expected an object or a list, got \"7\"");
  CHECK(error(double(), "absent") == "absent: expected a value, got null");
  CHECK(runtime_error_of([] { json_member<bool>(Json({1}), "a"); }) ==
        "a: expected a member of an object, got [1]");
}
