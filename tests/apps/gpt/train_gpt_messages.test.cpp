// SPDX-License-Identifier: MIT
// The help, the errors and the progress line of train_gpt.
#include <pty.h>

#include <algorithm>
#include <sstream>

#include "apps/program.h"
#include "apps/tiny_run.h"
#include "support/support.h"

namespace fs = std::filesystem;
using namespace mini::test;

namespace {

/// Runs a program with a terminal as its standard error. Returns the bytes that the terminal got.
std::string on_a_terminal(const std::string& command_line) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  if (child == 0) {
    const std::string command = "exec >/dev/null; exec '" MINI_APPS "'/" + command_line;
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  REQUIRE(child > 0);
  std::string text;
  char bytes[4096];
  for (ssize_t size; (size = ::read(terminal, bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<std::size_t>(size));
  }
  ::close(terminal);
  ::waitpid(child, nullptr, 0);
  return text;
}

}  // namespace

TEST_CASE("train_gpt refuses invalid texts and folders", "[app][train_gpt]") {
  const TinyFolder folder;
  const auto refused = [&](const std::string& data, const std::string& options = "") {
    const Run failed = run("train_gpt --data " + folder.path_of(data) + " --output " +
                           folder.path_of("run") + " --steps 2 " + options);
    CHECK(failed.status == 1);
    CHECK(is_one_line(failed.err));
    CHECK_FALSE(fs::exists(folder / "run"));
    CHECK_FALSE(fs::exists(folder / ".run.new"));
    return failed.err;
  };
  write_file(folder / "short.txt", std::string(70, 'a'));
  CHECK_THAT(refused("short.txt"),
             ContainsSubstring("expected more than block_size 64 training tokens and at least 2 "
                               "validation tokens, got 63 and 7"));
  CHECK_THAT(refused("short.txt"), ContainsSubstring((folder / "short.txt").string()));
  write_file(folder / "empty.txt", "");
  CHECK_THAT(refused("empty.txt"), ContainsSubstring("empty.txt' is empty"));
  fs::create_directory(folder / "folder");
  CHECK_THAT(refused("folder"), ContainsSubstring("folder' is not a regular file"));
  CHECK_THAT(refused("none.txt"), ContainsSubstring("none.txt': No such file or directory"));
  write_file(folder / "latin1.txt", tiny_text() +
                                        "gr\xf6\xdf"
                                        "e");
  CHECK_THAT(refused("latin1.txt"),
             ContainsSubstring("expected UTF-8, got an invalid sequence at byte " +
                               std::to_string(tiny_text().size() + 2)));

  write_file(folder / "file", "x");
  const Run taken = run(folder.train("file"));
  CHECK(taken.status == 1);
  CHECK_THAT(taken.err, ContainsSubstring("expected a new folder, got '" +
                                          (folder / "file").string() + "', a file\n"));
  fs::create_directories(folder / "no_run/within");
  CHECK_THAT(run(folder.train("no_run")).err, ContainsSubstring("which is not empty\n"));
  CHECK_THAT(
      run(folder.resume("no_run")).err,
      ContainsSubstring("no_run' is not the folder of a training run: it has no config.json"));
  CHECK(read_file(folder / "file") == "x");
}

TEST_CASE("train_gpt ends with an error if the loss is not finite", "[app][train_gpt]") {
  const TinyFolder folder;
  const Run failed =
      run(folder.train("run", "--steps 50 --learning-rate 1e30 --warmup-steps 0 --clip 0"));
  CHECK(failed.status == 1);
  CHECK_THAT(failed.err, ContainsSubstring("expected finite numbers, got loss "));
}

TEST_CASE("train_gpt explains wrong usage in one line", "[app][train_gpt]") {
  const std::string data = "--data a --output b ";
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"", "expected --data and --output, or --resume"},
      {"--data a", "expected --data and --output, or --resume"},
      {"--output b", "expected --data and --output, or --resume"},
      {"--resume a --output b", "--output"},
      {data + "--block-size 0", "--block-size: expected a whole number from 1"},
      {data + "--dropout 1.5", "--dropout: expected a number from 0 to 1, got '1.5'"},
      {data + "--learning-rate 0", "--learning-rate: expected a finite number above 0, got '0'"},
      {data + "--clip -1", "--clip: expected a finite number of at least 0, got '-1'"},
      {data + "--schedule linear", "--schedule: expected cosine or constant, got 'linear'"},
      {data + "--tokenizer words", "--tokenizer: expected characters or bytes, got 'words'"},
      {data + "--gelu-approximate fast", "--gelu-approximate: expected none or tanh, got 'fast'"},
      {data + "--n-head 3 --n-embd 8", "--n-embd 8 is not a multiple of --n-head 3"},
      {data + "--beta1 1", "expected a number from 0 to below 1, got '1'"},
      {data + "--beta2 -0.1", "expected a number from 0 to below 1, got '-0.1'"},
      {data + "--steps 5 --warmup-steps 6", "--warmup-steps 6 are more than --steps 5"},
      {data + "--learning-rate 0.1 --min-learning-rate 0.2",
       "--min-learning-rate 0.2 is above --learning-rate 0.1"},
      {data + "--threads 1025", "--threads: expected a whole number from 1 to 1024, got '1025'"},
      {data + "extra", "extra"},
  };
  for (const auto& [options, fragment] : wrong) {
    INFO(options);
    const Run failed = run("train_gpt " + options);
    CHECK(failed.status == 2);
    CHECK(failed.out.empty());
    CHECK(is_one_line(failed.err));
    CHECK_THAT(failed.err, ContainsSubstring("train_gpt: "));
    CHECK_THAT(failed.err, ContainsSubstring(fragment));
  }
}

TEST_CASE("train_gpt --help shows each setting with its default", "[app][train_gpt]") {
  const Run help = run("train_gpt --help");
  CHECK(help.status == 0);
  std::istringstream words(help.out), lines(help.out);
  std::string text;  // all words, without line breaks
  for (std::string word; words >> word;) text += word + ' ';
  for (const char* fragment :
       {"--data FILE Text file", "--batch-size INT Windows per batch, B (default: 32) ",
        "(default: 0.001) ", "(default: a tenth of --learning-rate) ",
        "(default: 100 or a tenth of --steps, whichever is less) ", "(default: LibTorch's choice) ",
        "(default: 1337) ", "--bias Add ", "--eval-every INT ", "(excludes --output) "}) {
    CHECK_THAT(text, ContainsSubstring(fragment));
  }
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 80);
  }
}

TEST_CASE("train_gpt overwrites one progress line on a terminal", "[app][train_gpt]") {
  const TinyFolder folder;
  const std::string shown = on_a_terminal(folder.train("run", "--steps 200 --eval-every 100"));
  CHECK_THAT(shown, ContainsSubstring("\rstep "));
  CHECK_THAT(shown, ContainsSubstring(" of 200, loss "));
  CHECK_THAT(shown, ContainsSubstring(" tokens/s, 0:0"));
  CHECK_THAT(shown, ContainsSubstring(" left"));
  CHECK_THAT(shown, ContainsSubstring("\rstep 100: train_loss "));
  CHECK(std::count(shown.begin(), shown.end(), '\n') == 3);  // the greeting, two evaluations
}
