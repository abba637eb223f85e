// SPDX-License-Identifier: MIT
#include <cmath>
#include <fstream>
#include <numeric>
#include <sstream>

#include "apps/program.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

namespace {

at::Tensor tensor(const json& rows) {
  if (!rows[0].is_array()) {
    return torch::tensor(rows.get<std::vector<double>>(), at::kDouble);
  }
  std::vector<at::Tensor> stacked;
  for (const json& row : rows) {
    stacked.push_back(tensor(row));
  }
  return at::stack(stacked);
}

json golden() { return json::parse(read_file(MINI_FIXTURES "/golden.json"))["head"]; }

std::vector<std::string> lesson_lines() {
  std::ifstream file(MINI_FIXTURES "/lesson_output.txt");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

TEST_CASE("compare_weights reproduces the lesson's numbers", "[app][compare_weights]") {
  const json actual = run_json("compare_weights"), expected = golden();
  CHECK(actual["scores_shape"] == json({1, 4, 4}));
  CHECK(std::abs(actual["scale"].get<double>() - expected["scale"].get<double>()) < 1e-15);
  CHECK_THAT(tensor(actual["scores"]), AllClose(tensor(expected["scores"]), 0, 5e-6));
  for (const char* name :
       {"unscaled_weights", "scaled_weights", "unscaled_row_sums", "scaled_row_sums"}) {
    INFO(name);
    CHECK_THAT(tensor(actual[name]), AllClose(tensor(expected[name]), 0, 1e-6));
  }
}

TEST_CASE("compare_weights prints what the lesson's Python prints", "[app][compare_weights]") {
  const Run text = run("compare_weights");
  CHECK(text.status == 0);
  CHECK(text.err.empty());
  const std::vector<std::string> lines = lesson_lines();
  REQUIRE(lines.size() >= 11);
  for (size_t i = 0; i < 11; ++i) {  // shape, row 3, scale factor, two grids of four rows
    CHECK_THAT(text.out, ContainsSubstring(lines[i]));
  }
  CHECK_THAT(text.out, ContainsSubstring("row 3: 0.78 -1.23 1.60 0.93"));
  CHECK_THAT(text.out, ContainsSubstring("0.43 0.25 0.30 0.03    0.29 0.26 0.27 0.18"));
}

TEST_CASE("compare_weights measures each row and each grid", "[app][compare_weights]") {
  const json j = run_json("compare_weights");
  for (const std::string name : {"unscaled", "scaled"}) {
    const at::Tensor weights = tensor(j[name + "_weights"]);
    CHECK_THAT(tensor(j[name + "_peaks"]), AllClose(weights.amax(-1), 0, 1e-6));
    const at::Tensor entropy = -(weights * weights.log()).sum(-1);
    CHECK_THAT(tensor(j[name + "_entropies"]), AllClose(entropy, 0, 1e-6));
    CHECK_THAT(tensor(j[name + "_entropy_shares"]), AllClose(entropy / std::log(4.0), 0, 1e-6));
    CHECK(j[name + "_smallest"].get<double>() == weights.min().item<double>());
    CHECK(j[name + "_largest"].get<double>() == weights.max().item<double>());
  }
  const std::string text = run("compare_weights").out;
  CHECK_THAT(text, ContainsSubstring("unscaled weights: smallest 0.03, largest 0.52"));
  CHECK_THAT(text, ContainsSubstring("scaled weights: smallest 0.18, largest 0.31"));
  CHECK_THAT(text, ContainsSubstring("The factor 0.1768 makes the weights more even."));
  CHECK_THAT(text, ContainsSubstring("x: (1, 4, 128) -> query, key, value: (1, 4, 32)"));
  CHECK(std::abs(j["scores_spread"].get<double>() -
                 tensor(j["scores"]).flatten().std().item<double>()) < 1e-5);
  for (const std::string name : {"unscaled", "scaled"}) {
    const at::Tensor w = tensor(j[name + "_weights"]);
    CHECK(std::abs(j[name + "_median_slope"].get<double>() -
                   (w * (1 - w)).median().item<double>()) < 1e-6);
    CHECK(std::abs(j[name + "_mean_entropy"].get<double>() -
                   tensor(j[name + "_entropies"]).mean().item<double>()) < 1e-6);
  }
  CHECK(j["even_median_slope"] == 0.1875);
  CHECK_THAT(text, ContainsSubstring("Neither softmax is saturated at these scores"));
}

TEST_CASE("each option of compare_weights changes what it names", "[app][compare_weights]") {
  const json usual = run_json("compare_weights");
  SECTION("--seed") {
    CHECK(run_json("compare_weights --seed 43")["scores"] != usual["scores"]);
    CHECK(run_json("compare_weights --seed 42")["scores"] == usual["scores"]);
    CHECK(run_json("compare_weights --seed 4294967295")["seed"] == 4294967295u);
  }
  SECTION("--tokens") {
    CHECK(run_json("compare_weights --tokens 6")["scores_shape"] == json({1, 6, 6}));
    const Run one = run("compare_weights --tokens 1");
    CHECK(one.status == 0);
    CHECK_THAT(one.out, ContainsSubstring("row 0: "));
    CHECK(run_json("compare_weights --tokens 1")["scaled_weights"] == json({{1.0}}));
    CHECK_THAT(run("compare_weights --tokens 20").out,
               ContainsSubstring("the first 16 of 20 rows"));
    CHECK(run_json("compare_weights --tokens 20")["scaled_weights"].size() == 20);
  }
  SECTION("--n-embd") {
    CHECK(run_json("compare_weights --n-embd 64")["scores"] != usual["scores"]);
  }
  SECTION("--head-size changes the scale too") {
    CHECK(run_json("compare_weights --head-size 16")["scale"] == 0.25);
    CHECK(run_json("compare_weights --head-size 16")["scores"] != usual["scores"]);
  }
  SECTION("--scale") {
    const json one = run_json("compare_weights --scale 1");
    CHECK(one["scaled_weights"] == one["unscaled_weights"]);
    CHECK_THAT(run("compare_weights --scale 1").out,
               ContainsSubstring("The factor 1.0000 does not change how even the weights are."));
    CHECK_THAT(run("compare_weights --scale 3").out,
               ContainsSubstring("The factor 3.0000 makes the weights less even."));
    const json even = run_json("compare_weights --scale 0");
    for (const json& row : even["scaled_weights"]) {
      CHECK(row == json({0.25, 0.25, 0.25, 0.25}));
    }
    CHECK(run_json("compare_weights --scale -0.5")["scale"] == -0.5);
  }
  SECTION("--causal") {
    const json causal = run_json("compare_weights --causal");
    CHECK(causal["scaled_weights"][0] == json({1.0, 0.0, 0.0, 0.0}));
    CHECK(causal["unscaled_weights"][2][3] == 0.0);
    CHECK(causal["even_median_slope"].get<double>() > 0.18);  // hidden weights are left out
    CHECK_THAT(run("compare_weights --head-size 512").out,
               ContainsSubstring("The unscaled softmax is saturated: most of its weights hardly "
                                 "change with the scores.\nThe scaled softmax is not saturated."));
    const at::Tensor visible = tensor(causal["scaled_weights"]).gt(0),
                     scores = tensor(causal["scores"]);
    const at::Tensor weights = tensor(causal["scaled_weights"]);
    CHECK(causal["scaled_smallest"].get<double>() > 0);
    CHECK(std::abs(causal["scores_spread"].get<double>() -
                   scores.masked_select(visible).std().item<double>()) < 1e-5);
    CHECK(causal["scaled_entropy_shares"][0] == 0.0);
    CHECK(std::abs(causal["scaled_entropy_shares"][1].get<double>() -
                   causal["scaled_entropies"][1].get<double>() / std::log(2.0)) < 1e-6);
    const std::string text = run("compare_weights --causal").out;
    CHECK_THAT(text, ContainsSubstring("causal") && ContainsSubstring("entropy  of even"));
  }
}

TEST_CASE("compare_weights describes a single token in the singular", "[app][compare_weights]") {
  CHECK_THAT(run("compare_weights --tokens 1").out, ContainsSubstring("1 token of width 128,"));
}

TEST_CASE("compare_weights writes CSV with one value per line", "[app][compare_weights]") {
  const std::string csv = run("compare_weights --format csv").out;
  CHECK_THAT(csv, ContainsSubstring("name,batch,row,column,value\n"));
  CHECK_THAT(csv, ContainsSubstring("\ntokens,,,,4\n"));
  CHECK_THAT(csv, ContainsSubstring("\nscaled_row_sums,,3,,"));
  const json j = run_json("compare_weights");
  CHECK_THAT(csv, ContainsSubstring("\nscores,,3,1," + j["scores"][3][1].dump() + "\n"));
}

TEST_CASE("compare_weights draws both grids as SVG", "[app][compare_weights]") {
  const Run done = run("compare_weights --format svg");
  CHECK(done.status == 0);
  CHECK_THAT(done.out,
             ContainsSubstring("<svg ") && ContainsSubstring(">unscaled weights</text>") &&
                 ContainsSubstring(">scaled weights</text>") && ContainsSubstring(">0.43</text>") &&
                 ContainsSubstring(">0.18</text>") && ContainsSubstring(">0.00</text>"));
  CHECK(run("compare_weights --format svg --seed 1").out != done.out);
}

TEST_CASE("compare_weights colours its grids only on a terminal", "[app][compare_weights]") {
  const std::string in_color = "COLORTERM=truecolor; export COLORTERM; unset NO_COLOR; ";
  const std::string plain = run("compare_weights").out;
  const std::string drawn = run_in_terminal(in_color, "compare_weights");
  CHECK_THAT(drawn, ContainsSubstring("\x1b[48;2;"));
  CHECK_THAT(without_colors(drawn), ContainsSubstring("0  0.43  0.25  0.30  0.03") &&
                                        ContainsSubstring("0  0.29  0.26  0.27  0.18 \n"));
  // The text below the grids is the same as in a file.
  const std::string rest = plain.substr(plain.find("        unscaled"));
  CHECK(drawn.substr(drawn.find("        unscaled")) == rest);
  CHECK(run_in_terminal(in_color + "NO_COLOR=1; export NO_COLOR; ", "compare_weights") == plain);
  CHECK(run_in_terminal("unset COLORTERM; TERM=dumb; export TERM; ", "compare_weights") == plain);

  const TemporaryFolder folder;
  run_in_terminal(in_color, "compare_weights --output '" + (folder / "weights.txt").string() + "'");
  CHECK(read_file(folder / "weights.txt") == plain);
}

TEST_CASE("compare_weights bins the weights of many tokens on a terminal",
          "[app][compare_weights]") {
  const std::string drawn = run_in_terminal(
      "COLORTERM=truecolor; export COLORTERM; unset NO_COLOR; ", "compare_weights --tokens 100");
  CHECK_THAT(drawn, ContainsSubstring("Each cell shows the largest of up to "));
}

TEST_CASE("compare_weights writes a page that loads no other file", "[app][compare_weights]") {
  const Run done = run("compare_weights --format html");
  CHECK(done.status == 0);
  CHECK(done.out.size() < 100'000);
  CHECK_THAT(done.out,
             ContainsSubstring(
                 "\"description\":\"4 tokens of width 128, one head of size 32, seed 42\"") &&
                 ContainsSubstring("\"head_size\":32,\"divisor\":5.65685424949238") &&
                 ContainsSubstring("\"scores\":[[["));
  for (const char* foreign : {"http:", "https:", "src=", "@import", "url(", "\"mask\":"}) {
    INFO(foreign);
    CHECK(done.out.find(foreign) == std::string::npos);
  }
  CHECK_THAT(run("compare_weights --format html --causal").out,
             ContainsSubstring("\"mask\":[[[0.0,\"-inf\",\"-inf\",\"-inf\"]"));
  CHECK_THAT(run("compare_weights --format html --scale 0.25").out,
             ContainsSubstring("\"divisor\":4.0,"));
  const std::string largest = run("compare_weights --format html --causal --tokens 90").out;
  CHECK(largest.size() > 100'000);
  CHECK(largest.size() <= 300'000);
}

TEST_CASE("compare_weights writes a complete file or none", "[app][compare_weights]") {
  const TemporaryFolder folder;
  const std::string path = folder / "weights.json";
  const Run done = run("compare_weights --format json --output '" + path + "'");
  CHECK(done.status == 0);
  CHECK(done.out.empty());
  CHECK(json::parse(read_file(path)) == run_json("compare_weights"));

  SECTION("a folder that does not exist") {
    const Run failed = run("compare_weights --output '" + path + "/none/x'");
    CHECK(failed.status == 1);
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err,
               ContainsSubstring("compare_weights: cannot write '" + path + "/none/x'"));
  }
  SECTION("a folder instead of a file") {
    const Run failed = run("compare_weights --output '" + folder.path().string() + "'");
    CHECK(failed.status == 1);
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring(folder.path().string()));
  }
  SECTION("a full disk leaves the old file") {
    const std::string before = read_file(path);
    // A limit on the size of files, in blocks of 512 bytes, simulates a full disk.
    const Run failed =
        run("compare_weights --help >/dev/null; ulimit -f 1; trap '' XFSZ; '" MINI_APPS
            "'/compare_weights --format json --output '" +
            path + "'");
    CHECK(failed.status == 1);
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring("cannot write '" + path + "'"));
    CHECK(read_file(path) == before);
    CHECK(folder.entries() == std::set<std::string>{"weights.json"});
  }
  SECTION("a full standard output") {
    const Run failed = run("compare_weights >/dev/full");
    CHECK(failed.status == 1);
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring("cannot write to standard output: No space left"));
  }
}

TEST_CASE("compare_weights reports wrong usage in one line", "[app][compare_weights]") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"--colour", "--colour"},
      {"extra", "extra"},
      {"--head-size 0", "--head-size: expected a whole number from 1 to 2^31 - 1, got '0'"},
      {"--tokens -1", "--tokens: expected a whole number from 1 to 2^31 - 1, got '-1'"},
      {"--tokens 2.5", "--tokens: expected a whole number from 1 to 2^31 - 1, got '2.5'"},
      {"--n-embd many", "--n-embd: expected a whole number from 1 to 2^31 - 1, got 'many'"},
      {"--tokens 99999999999999999999", "--tokens: expected a whole number from 1 to 2^31 - 1"},
      {"--tokens ''", "--tokens"},
      {"--tokens", "--tokens"},
      {"--seed -1", "--seed: expected a whole number from 0 to 2^32 - 1, got '-1'"},
      {"--tokens 2147483648", "--tokens: expected a whole number from 1 to 2^31 - 1"},
      {"--seed 4294967296", "--seed: expected a whole number from 0 to 2^32 - 1"},
      {"--output ''", "--output: expected a file name, got ''"},
      {"--tokens '5\n6'", "--tokens: expected a whole number"},
      {"--scale nan", "--scale: expected a finite number, got 'nan'"},
      {"--scale inf", "--scale: expected a finite number, got 'inf'"},
      {"--scale 1e999", "--scale: expected a finite number, got '1e999'"},
      {"--scale x", "--scale: expected a finite number, got 'x'"},
      {"--format xml", "--format: expected text, json, csv, svg or html, got 'xml'"},
      {"--format 1", "--format: expected text, json, csv, svg or html, got '1'"},
      {"--format html --scale 2", "--scale: expected a factor from 1 / head size to 1"},
      {"--format html --scale 0.01", "the range of the page, got 0.01"},
      {"--format html --tokens 200", "--format html: expected a page of at most 300 KB, got"},
  };
  for (const auto& [arguments, message] : wrong) {
    INFO(arguments);
    const Run failed = run("compare_weights " + arguments);
    CHECK(failed.status == 2);
    CHECK(failed.out.empty());
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring("compare_weights: ") && ContainsSubstring(message));
  }
}

TEST_CASE("compare_weights reads integers as decimal", "[app][compare_weights]") {
  CHECK(run_json("compare_weights --tokens 010")["scores_shape"] == json({1, 10, 10}));
}

TEST_CASE("compare_weights rejects a scale that overflows float32", "[app][compare_weights]") {
  const auto error = [](const std::string& scale) {
    const Run failed = run("compare_weights --scale " + scale);
    CHECK(failed.status == 1);
    CHECK(failed.out.empty());
    return failed.err;
  };
  CHECK_THAT(error("1e39"), ContainsSubstring("expected a scale that float32 can hold, got 1e+39"));
  CHECK_THAT(error("3e38"), ContainsSubstring("too large for float32"));  // the scaled scores are
}

TEST_CASE("compare_weights exits with its usual status if its output cannot be written",
          "[app][compare_weights]") {
  CHECK(run("compare_weights --colour 2>/dev/full").status == 2);
  CHECK(run("compare_weights --colour 2>&-").status == 2);
  CHECK(run("compare_weights --help >/dev/full").status == 1);
}

TEST_CASE("compare_weights reports a lack of memory in one line", "[app][compare_weights]") {
  const Run failed = run("compare_weights --tokens 2147483647");
  CHECK(failed.status == 1);
  CHECK(failed.out.empty());
#ifndef __SANITIZE_ADDRESS__  // which adds a warning of its own
  CHECK(is_one_line(failed.err));
#endif
}

TEST_CASE("compare_weights --help lists each option with its default", "[app][compare_weights]") {
  const Run help = run("compare_weights --help");
  CHECK(help.status == 0);
  CHECK(help.err.empty());
  for (const char* option : {"--seed", "--tokens", "--n-embd", "--head-size", "--scale", "--causal",
                             "--format", "--output"}) {
    CHECK_THAT(help.out, ContainsSubstring(option));
  }
  std::istringstream words(help.out);
  std::string text;  // all words, without line breaks
  for (std::string word; words >> word;) text += word + ' ';
  for (const std::string value : {"42", "4", "128", "32", "1 / sqrt(head size)", "text"}) {
    CHECK_THAT(text, ContainsSubstring("(default: " + value + ")"));
  }
}
