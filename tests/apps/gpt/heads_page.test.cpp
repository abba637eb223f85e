// SPDX-License-Identifier: MIT
// The page of inspect_attention.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/gpt/heads_folder.h"
#include "apps/program.h"
#include "apps/tiny_run.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

namespace {

/// The cells of a page, decoded as the browser decodes them.
std::vector<float> unpacked(const std::string& base64) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char digit : base64) {
    if (digit == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(digit));
    count += 6;
    if (count >= 8) bytes += static_cast<char>(bits >> (count -= 8) & 0xff);
  }
  std::vector<float> numbers(bytes.size() / 4);
  std::memcpy(numbers.data(), bytes.data(), numbers.size() * 4);
  return numbers;
}

json page_data(const std::string& html) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const size_t from = html.find(begin) + begin.size();
  return json::parse(html.substr(from, html.find("</script>", from) - from));
}

}  // namespace

TEST_CASE("inspect_attention writes a page of a run's heads", "[app][inspect_attention]") {
  const TinyFolder folder;
  REQUIRE(run(folder.train("run", "--steps 2")).status == 0);
  const Run done = run("inspect_attention --model " + folder.path_of("run") +
                       " --prompt 'to größ' --format html");
  INFO(done.err);
  REQUIRE(done.status == 0);
  const json data = page_data(done.out);
  CHECK(data["texts"] == json{"t", "o", " ", "g", "r", "ö", "ß"});
  CHECK(data["description"] == "2 layers of 2 heads of size 8, 7 tokens, causal");
  CHECK(data["views"].size() == 4);
  CHECK(unpacked(data["views"][3]["scaled"]["weights"]).size() == 7 * 8 / 2);
  CHECK(unpacked(data["views"][3]["scaled"]["weights"])[0] == 1.0f);
  CHECK(done.out.find("@data@") == std::string::npos);
  CHECK(done.out.find(".css\"") == std::string::npos);
  CHECK(done.out.find(".js\"") == std::string::npos);
}

TEST_CASE("each cell of inspect_attention's page shows its largest weight",
          "[app][inspect_attention]") {
  const int64_t T = 300, each = 3;  // 100 cells, at most 128
  const at::Tensor q = drawn({T, 8}, 1), k = drawn({T, 8}, 2);
  const HeadsFolder folder(q, k);
  for (const bool causal : {false, true}) {
    const json data = page_data(
        run(folder.inspect(std::string("--format html") + (causal ? " --causal" : ""))).out);
    CHECK(data["values_each"] == each);
    CHECK(data["texts"].empty());
    for (const auto& [name, scale] : {std::pair("unscaled", 1.0), {"scaled", 1 / std::sqrt(8.0)}}) {
      const at::Tensor weights = reference_weights(q, k, scale, causal);
      const at::Tensor cells = weights.unflatten(1, {T / each, each})
                                   .amax(-1)
                                   .unflatten(0, {T / each, each})
                                   .amax(1);  // (100, 100)
      const at::Tensor shown =
          causal ? cells.masked_select(at::ones({T / each, T / each}, at::kBool).tril())
                 : cells.flatten();
      const std::vector<float> actual = unpacked(data["views"][0][name]["weights"]);
      CHECK_THAT(torch::tensor(actual), AllClose(shown, 1e-6, 1e-12));
    }
  }
}

TEST_CASE("inspect_attention limits the size of a page of many heads", "[app][inspect_attention]") {
  const at::Tensor q = drawn({20, 20, 100, 1}, 1).to(at::kFloat);
  const std::string html = run(HeadsFolder(q, q).inspect("--format html")).out;
  CHECK(html.size() < 50'000'000);
  CHECK(page_data(html)["values_each"] == 2);
}

TEST_CASE("inspect_attention shows NaN", "[app][inspect_attention]") {
  at::Tensor q = drawn({300, 4}, 1);
  q[199][1] = NAN;  // its cells also hold the weights of query 200
  const HeadsFolder folder(q, drawn({300, 4}, 2));
  CHECK(run_json(folder.inspect("--causal"))["attention"][0]["scaled"]["entropy"] == "nan");
  const std::vector<float> cells = unpacked(page_data(
      run(folder.inspect("--causal --format html")).out)["views"][0]["scaled"]["weights"]);
  CHECK(std::count_if(cells.begin(), cells.end(), [](float x) { return std::isnan(x); }) == 67);
}
