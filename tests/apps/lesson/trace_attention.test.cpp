// SPDX-License-Identifier: MIT
#include <cmath>

#include "apps/program.h"
#include "support/support.h"

using namespace mini::test;
using nlohmann::json;

namespace {

// Runs trace_attention on a file of this content.
Run trace(const std::string& content, const std::string& options = "") {
  const TemporaryFolder folder;
  const std::string path = folder / "in.json";
  write_file(path, content);
  return run("trace_attention --input '" + path + "' " + options);
}

json trace_json(const std::string& content, const std::string& options = "") {
  const Run done = trace(content, options + " --format json");
  REQUIRE(done.status == 0);
  return json::parse(done.out);
}

bool close(const json& a, double b) { return std::abs(a.get<double>() - b) < 1e-9; }

const std::string kTwoByTwo = R"({"q": [[1, 0], [0, 1]], "k": [[1, 0], [0, 1]], "v": [[1], [3]]})";

}  // namespace

TEST_CASE("trace_attention's built-in example can be checked by hand", "[app][trace_attention]") {
  const json j = run_json("trace_attention");
  CHECK(j["scores"] == json({{{2.0, 0.0, 1.0}, {0.0, 4.0, 2.0}, {1.0, 4.0, 2.0}}}));
  CHECK(j["scale"] == 0.5);
  CHECK(j["scaled_scores"] == json({{{1.0, 0.0, 0.5}, {0.0, 2.0, 1.0}, {0.5, 2.0, 1.0}}}));
  const double e = std::exp(1.0), root = std::exp(0.5), sum = e + 1 + root;
  CHECK(close(j["weights"][0][0][0], e / sum));
  CHECK(close(j["weights"][0][0][2], root / sum));
  CHECK(j["output"][0][0][0] == j["weights"][0][0][0]);
  CHECK(close(j["output"][0][0][3], (2 * e + 4 + 6 * root) / sum));
  CHECK(close(j["unscaled_weights"][0][0][0], e * e / (e * e + 1 + e)));
  CHECK(j["unscaled_peaks"][0][0] > j["peaks"][0][0]);
  CHECK(j["shapes"]["q"] == json({1, 3, 4}));
  CHECK(j["shapes"]["scores"] == json({1, 3, 3}));
  CHECK(j["shapes"]["output"] == json({1, 3, 4}));
  CHECK(j["checks"] == json({{"finite", true}, {"shapes", true}, {"rows_sum_to_one", true}}));

  const std::string text = run("trace_attention").out;
  for (const char* part :
       {"Q: 1 x 3 x 4", "scores = Q K^T: 1 x 3 x 3", "scaled scores = 0.5000 scores: 1 x 3 x 3",
        "weights = softmax(scaled scores): 1 x 3 x 3", "output = weights V: 1 x 3 x 4",
        "finite values: yes", "expected shapes: yes", "rows sum to one: yes",
        "the peak is higher in 3 of 3 rows", "d_k = 4, 1 / sqrt(d_k) = 0.5000",
        "Neither softmax is saturated at these scores",
        "(Saturated: a median slope below 0.0022, "}) {
    CHECK_THAT(text, ContainsSubstring(part));
  }
}

TEST_CASE("trace_attention accepts matrices of two or three dimensions", "[app][trace_attention]") {
  const json flat = trace_json(kTwoByTwo);
  const double w = std::exp(std::sqrt(0.5)) / (std::exp(std::sqrt(0.5)) + 1);
  CHECK(close(flat["weights"][0][0], w));
  CHECK(close(flat["output"][0][0], w + 3 * (1 - w)));
  const json batch =
      trace_json(R"({"q": [[[1, 0]], [[0, 2]]], "k": [[[1, 0], [0, 1]], [[1, 0], [0, 1]]], )"
                 R"("v": [[[1], [3]], [[5], [7]]]})");
  CHECK(batch["shapes"]["weights"] == json({2, 1, 2}));
  CHECK(batch["shapes"]["output"] == json({2, 1, 1}));
  CHECK_THAT(trace(R"({"q": [[[1]], [[0]]], "k": [[[1]], [[0]]], "v": [[[1]], [[5]]]})").out,
             ContainsSubstring("  batch 1\n"));
}

TEST_CASE("trace_attention applies --scale, --causal and the mask", "[app][trace_attention]") {
  CHECK(trace_json(kTwoByTwo, "--scale 2")["scaled_scores"] == json({{2.0, 0.0}, {0.0, 2.0}}));
  CHECK(trace_json(kTwoByTwo, "--causal")["weights"][0] == json({1.0, 0.0}));
  CHECK(trace_json(kTwoByTwo, "--causal")["unscaled_weights"][0] == json({1.0, 0.0}));
  CHECK_THAT(trace(kTwoByTwo, "--causal").out, ContainsSubstring("softmax(scaled scores, causal)"));
  CHECK_THAT(trace(kTwoByTwo, "--scale 2").out, ContainsSubstring("--scale replaces it by 2.0000"));
  CHECK_THAT(trace(kTwoByTwo, "--scale 1").out,
             ContainsSubstring("The factor is 1, so it does not change the weights"));

  const std::string open = kTwoByTwo.substr(0, kTwoByTwo.size() - 1);
  const json kept = trace_json(open + R"(, "mask": [[true, false], [false, false]]})");
  CHECK(kept["weights"] == json({{1.0, 0.0}, {0.0, 0.0}}));
  CHECK(kept["checks"]["rows_sum_to_one"] == true);
  CHECK(kept["mask"] == json({{true, false}, {false, false}}));
  CHECK(kept["median_slope"].is_null());  // no row sees two keys
  CHECK_THAT(trace(open + R"(, "mask": [[true, false], [false, false]]})", "--format csv").out,
             ContainsSubstring("\nmedian_slope,,,,\n"));
  const json added = trace_json(open + R"(, "mask": [[0, "-inf"], [0, 1.5]]})");
  CHECK(added["weights"][0] == json({1.0, 0.0}));
  CHECK(added["mask"] == json({{0.0, "-inf"}, {0.0, 1.5}}));  // in the form that a file may have
  CHECK_THAT(trace(open + R"(, "mask": [[0, "-inf"], [0, 1.5]]})").out,
             ContainsSubstring("weights = softmax(scaled scores + mask): "));
  const double w = added["weights"][1][0];  // the first row has one visible key
  CHECK(close(added["median_slope"], w * (1 - w)));
  CHECK(close(added["even_median_slope"], 0.25));  // whatever the mask adds
  CHECK_THAT(trace(open + R"(, "mask": [[true, false], [false, true]]})").out,
             ContainsSubstring("softmax(scaled scores, masked)") &&
                 ContainsSubstring("no weight depends on the scores"));
  CHECK(close(added["weights"][1][1], 1 / (1 + std::exp(-std::sqrt(0.5) - 1.5))));
  CHECK_THAT(trace(open + R"(, "mask": [[true, true], [false, false]]})").out,
             ContainsSubstring("rows sum to one: yes; 1 of 2 rows sums to 0, with no visible key"));
}

TEST_CASE("trace_attention reads the numbers that Python's json module writes",
          "[app][trace_attention]") {
  const std::string open = kTwoByTwo.substr(0, kTwoByTwo.size() - 1);
  const json hidden = trace_json(open + R"(, "mask": [[0.0, -Infinity], [0.0, 0.0]]})");
  CHECK(hidden["weights"][0] == json({1.0, 0.0}));
  CHECK(hidden["mask"] == json({{0.0, "-inf"}, {0.0, 0.0}}));
  for (const std::string entry : {"Infinity", "NaN", "\"inf\"", "\"nan\""}) {
    INFO(entry);
    const Run failed = trace(open + ", \"mask\": [[" + entry + ", 0], [0, 0]]}");
    CHECK(failed.status == 1);
    CHECK_THAT(failed.out, ContainsSubstring("finite values: NO"));
    CHECK_THAT(failed.err, ContainsSubstring("a check of the result failed"));
  }
  // Such a word inside a string stays as it is.
  CHECK_THAT(trace(R"({"Infinity \" NaN": 1})").err,
             ContainsSubstring("unknown key 'Infinity \" NaN'"));
}

TEST_CASE("trace_attention shows the steps and fails if a check fails", "[app][trace_attention]") {
  const Run failed = trace(R"({"q": [[1e200, 0]], "k": [[1e200, 0]], "v": [[1]]})");
  CHECK(failed.status == 1);
  CHECK_THAT(failed.out, ContainsSubstring("finite values: NO"));
  CHECK_THAT(failed.out,
             ContainsSubstring("Some weights are not finite, so their peaks are not compared"));
  CHECK_THAT(failed.out, !ContainsSubstring("-nan"));
  CHECK(is_one_line(failed.err));
  CHECK_THAT(failed.err, ContainsSubstring("trace_attention: a check of the result failed"));
  const TemporaryFolder folder;
  write_file(folder / "kept", "old");
  CHECK(trace(R"({"q": [[1e200]], "k": [[1e200]], "v": [[1]]})",
              "--output '" + (folder / "kept").string() + "'")
            .status == 1);
  CHECK(read_file(folder / "kept") == "old");
}

TEST_CASE("trace_attention names the fault in a file and its place", "[app][trace_attention]") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"", "line 1, column 1"},
      {std::string("{}\0x", 4), "expected text, got a NUL byte at offset 2"},
      {"{\n \"q\": [[1, 2],\n  x", "parse error at line 3, column 3"},
      {R"({"q": [[NaN]], "k": [[1]], "v": [[1]]})",
       "q: expected q[0][0] to be a number, got \"nan\""},
      {R"({"q": [[Nan]], "k": [[1]], "v": [[1]]})", "line 1, column 9"},
      {R"({"q": [[1e999]], "k": [[1]], "v": [[1]]})", "1e999"},
      {R"([1])", "expected an object with q, k and v, got array"},
      {R"({"q": [[1]], "k": [[1]]})", "missing key 'v'"},
      {R"({"q": [[1]], "k": [[1]], "v": [[1]], "w": 1})",
       "unknown key 'w': expected q, k, v and optionally mask"},
      {R"({"q": [[1, 2], [3]], "k": [[1, 2]], "v": [[1]]})",
       "q: expected q[1] to be a list of length 2 like the first, got length 1"},
      {R"({"q": [[1, 2], 3], "k": [[1, 2]], "v": [[1]]})",
       "q: expected q[1] to be a list of length 2 like the first, got number"},
      {R"({"q": [], "k": [[1]], "v": [[1]]})",
       "q: expected lists of at least one element, got an empty list at depth 1"},
      {R"({"q": [[1]], "k": [[]], "v": [[1]]})",
       "k: expected lists of at least one element, got an empty list at depth 2"},
      {R"({"q": 5, "k": [[1]], "v": [[1]]})",
       "q: expected a matrix or a list of matrices, got number"},
      {R"({"q": [1], "k": [[1]], "v": [[1]]})", "got lists of depth 1"},
      {R"({"q": [[[[1]]]], "k": [[1]], "v": [[1]]})", "got lists of depth 4"},
      {R"({"q": [["a"]], "k": [[1]], "v": [[1]]})",
       "q: expected q[0][0] to be a number, got \"a\""},
      {R"({"q": [["-inf"]], "k": [[1]], "v": [[1]]})",  // only a mask may contain it
       "q: expected q[0][0] to be a number, got \"-inf\""},
      {R"({"q": [[null]], "k": [[1]], "v": [[1]]})",
       "q: expected q[0][0] to be a number, got null"},
      {R"({"q": [[1]], "k": [[1]], "v": [[1]], "mask": [[true, 1]]})",
       "mask: expected mask[0][1] to be true or false like the first entry, got 1"},
      {R"({"q": [[1]], "k": [[1]], "v": [[1]], "mask": [["x"]]})",
       "mask: expected mask[0][0] to be a number, NaN, Infinity or -Infinity, got \"x\""},
  };
  for (const auto& [content, message] : wrong) {
    INFO(content);
    const Run failed = trace(content);
    CHECK(failed.status == 1);
    CHECK(failed.out.empty());
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring("in.json': ") && ContainsSubstring(message));
  }
}

TEST_CASE("trace_attention reports which shapes attention rejects", "[app][trace_attention]") {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {R"({"q": [[1, 2]], "k": [[1]], "v": [[1]]})",
       "q and k must share head_size d_k, got q [1, 2] and k [1, 1]"},
      {R"({"q": [[1]], "k": [[1]], "v": [[1], [2]]})",
       "k and v must share their length Tk, got k [1, 1] and v [2, 1]"},
      {R"({"q": [[1]], "k": [[1]], "v": [[1]], "mask": [[true], [true]]})",
       "broadcasts to the scores [1, 1], got [2, 1]"},
  };
  for (const auto& [content, message] : wrong) {
    const Run failed = trace(content);
    CHECK(failed.status == 1);
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring("in.json': ") && ContainsSubstring(message));
  }
}

TEST_CASE("trace_attention reports an input that is not a readable file",
          "[app][trace_attention]") {
  const TemporaryFolder folder;
  const Run directory = run("trace_attention --input '" + folder.path().string() + "'");
  CHECK(directory.status == 1);
  CHECK(is_one_line(directory.err));
  CHECK_THAT(directory.err,
             ContainsSubstring(folder.path().string() + "': expected a JSON file: Is a directory"));
  const Run missing = run("trace_attention --input '" + (folder / "none").string() + "'");
  CHECK(missing.status == 1);
  CHECK_THAT(missing.err, ContainsSubstring("none': cannot read the file: No such file"));
}

TEST_CASE("trace_attention writes its matrices into a page", "[app][trace_attention]") {
  const Run done = run("trace_attention --format html");
  CHECK(done.status == 0);
  CHECK_THAT(done.out,
             ContainsSubstring("\"head_size\":4,\"divisor\":2.0,\"q\":[[[1.0,0.0,1.0,0.0],") &&
                 ContainsSubstring("\"k\":[[[") && ContainsSubstring("\"v\":[[["));
  CHECK(done.out.find("\"mask\":") == std::string::npos);
  CHECK_THAT(
      run("trace_attention --format html --causal").out,
      ContainsSubstring("\"mask\":[[[0.0,\"-inf\",\"-inf\"],[0.0,0.0,\"-inf\"],[0.0,0.0,0.0]]]"));
  CHECK_THAT(run("trace_attention --format html --scale 0.25").out,
             ContainsSubstring("\"divisor\":4.0"));
  const Run beyond = run("trace_attention --format html --scale 0.1");
  CHECK(beyond.status == 2);
  CHECK_THAT(beyond.err, ContainsSubstring("expected a factor from 1 / head size to 1"));

  const std::string one =
      R"("q": [[[1]], [[2]]], "k": [[[1], [1]], [[1], [1]]], "v": [[[1], [1]], [[1], [1]]])";
  const auto page = [&](const std::string& mask) {
    return trace("{" + one + R"(, "mask": )" + mask + "}", "--format html").out;
  };
  CHECK_THAT(page("[[true, false]]"),
             ContainsSubstring("\"mask\":[[[0.0,\"-inf\"]],[[0.0,\"-inf\"]]]"));
  CHECK_THAT(page("[[[-10000, 3]], [[0, \"-inf\"]]]"),
             ContainsSubstring("\"mask\":[[[-10000.0,3.0]],[[0.0,\"-inf\"]]]"));
}
