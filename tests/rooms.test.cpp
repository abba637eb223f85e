// SPDX-License-Identifier: MIT
// Rules for all C++ files of the tree. A file includes only from its own room and from the rooms
// below it (docs/architecture.md). No line is longer than 100 columns, and no comment has a line
// that only a formatter would break.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/support.h"

namespace mini::test {
namespace {

namespace fs = std::filesystem;

// The C++ files of these folders below `root`, sorted.
std::vector<fs::path> cpp_files(const fs::path& root, const std::vector<std::string>& folders) {
  std::vector<fs::path> files;
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension == ".h" || extension == ".cpp") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

// Each room, and the rooms below it.
const std::map<std::string, std::set<std::string>> kBelow = {
    {"src/kernels", {}},
    {"src/files", {}},
    {"src/attention", {"src/kernels"}},
    {"src/modules", {"src/attention", "src/files", "src/kernels"}},
    {"src/training", {"src/modules", "src/attention", "src/files", "src/kernels"}},
    {"src/figures", {"src/files"}},
    {"apps/common", {"src/figures", "src/training", "src/modules", "src/attention", "src/files"}},
    {"apps/lesson", {"apps/common", "src/figures", "src/modules", "src/attention", "src/files"}},
    {"apps/gpt",
     {"apps/common", "src/figures", "src/training", "src/modules", "src/attention", "src/files"}},
    {"bench",
     {"apps/common", "src/training", "src/modules", "src/attention", "src/files", "src/kernels"}},
};

class Tree {
 public:
  explicit Tree(fs::path root) : root_(std::move(root)) {
    for (const auto& [room, below] : kBelow) {
      const fs::path list = root_ / room / "CMakeLists.txt";
      if (!room.starts_with("src/") || !fs::exists(list)) continue;
      static const std::regex header("\\n  ([a-z0-9_]+\\.h)(?=[\\s)])");
      const std::string text = read_file(list);
      for (std::sregex_iterator i(text.begin(), text.end(), header), end; i != end; ++i) {
        public_headers_[(*i)[1]] = room;
      }
    }
  }

  /// Describes each include that the rooms do not allow.
  std::vector<std::string> wrong_includes() const {
    std::vector<std::string> wrong;
    for (const fs::path& file : sources()) {
      const std::string room = room_of(file);
      for (const std::string& include : includes(file)) {
        const std::string problem = problem_of(room, include);
        if (!problem.empty()) {
          wrong.push_back(fs::relative(file, root_).string() + " includes " + include + ": " +
                          problem);
        }
      }
    }
    return wrong;
  }

  size_t count() const { return sources().size(); }

 private:
  std::vector<fs::path> sources() const {
    return cpp_files(root_, {"src", "include", "apps", "bench"});
  }

  // The names that a file includes.
  std::vector<std::string> includes(const fs::path& file) const {
    static const std::regex include("^#include [\"<]([^\">]+)[\">]");
    std::vector<std::string> names;
    std::istringstream lines(read_file(file));
    std::smatch match;
    for (std::string line; std::getline(lines, line);) {
      if (std::regex_search(line, match, include)) names.push_back(match[1]);
    }
    return names;
  }

  std::string room_of(const fs::path& file) const {
    const fs::path relative = fs::relative(file, root_);
    if (relative.begin()->string() == "include") {
      const auto found = public_headers_.find(file.filename());
      return found == public_headers_.end() ? "" : found->second;
    }
    return relative.parent_path().string();
  }

  std::string problem_of(const std::string& room, const std::string& include) const {
    if (include.starts_with("hwy/")) {
      return room == "src/kernels" ? "" : "SIMD belongs to src/kernels";
    }
    if (std::regex_search(include, std::regex("^(ATen|c10|torch)/"))) {
      return room == "src/kernels" ? "src/kernels is free of LibTorch" : "";
    }
    std::string target;
    if (include.starts_with("mini/")) {
      if (include == "mini/export.h" || room.empty()) return "";  // room.empty(): mini.h
      const auto found = public_headers_.find(include.substr(5));
      if (found == public_headers_.end()) return "no room lists this header";
      target = found->second;
    } else {
      for (const char* top : {"src/", "apps/"}) {
        if (include.find('/') != std::string::npos && fs::exists(root_ / top / include)) {
          target = top + fs::path(include).parent_path().string();
        }
      }
      if (target.empty() && fs::exists(root_ / room / include)) target = room;
      if (target.empty()) return "";  // a header of the system or of another library
    }
    const auto below = kBelow.find(room);
    if (below == kBelow.end()) return "'" + room + "' is not a room";
    const bool allowed = target == room || below->second.count(target) > 0;
    return allowed ? "" : target + " is not below " + room;
  }

  fs::path root_;
  std::map<std::string, std::string> public_headers_;
};

// ---- Lines and comments.

constexpr size_t kColumns = 100;
constexpr size_t kNearlyFull = 95;

// The number of UTF-8 characters.
size_t columns(const std::string& line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// A line that holds only a comment, such as "  /// Text."; `marker` is empty for other lines.
struct CommentLine {
  explicit CommentLine(const std::string& line) {
    static const std::regex pattern("^ *(//[/!]?<?)(?: +(.*))?$");
    std::smatch match;
    if (std::regex_match(line, match, pattern)) {
      marker = match[1];
      text = match[2];
    }
  }
  bool is_short() const {
    return !text.empty() && columns(text) < 15 && std::count(text.begin(), text.end(), ' ') < 2;
  }

  std::string marker, text;
};

// A formatter that splits an overlong comment line leaves its last words on a line of their own.
bool is_broken_comment(const std::string& before, const std::string& line,
                       const std::string& after) {
  if (columns(before) < kNearlyFull) return false;
  const CommentLine full(before), rest(line), next(after);
  return rest.is_short() && full.marker == rest.marker && next.marker == rest.marker &&
         !next.text.empty();
}

// Describes each long line and each broken comment in the C++ files below `root`.
std::vector<std::string> wrong_lines(const fs::path& root) {
  std::vector<std::string> wrong;
  for (const fs::path& file :
       cpp_files(root, {"src", "include", "apps", "bench", "examples", "tests"})) {
    std::istringstream text(read_file(file));
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::string place =
          fs::relative(file, root).string() + ":" + std::to_string(i + 1) + ": ";
      if (columns(lines[i]) > kColumns) {
        wrong.push_back(place + std::to_string(columns(lines[i])) + " columns");
      }
      if (i > 0 && i + 1 < lines.size() &&
          is_broken_comment(lines[i - 1], lines[i], lines[i + 1])) {
        wrong.push_back(place + "broken comment line \"" + CommentLine(lines[i]).text + "\"");
      }
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("a file includes only from its own room and from the rooms below", "[rooms]") {
  const Tree tree(MINI_SOURCE);
  CHECK(tree.count() > 100);
  CHECK(tree.wrong_includes() == std::vector<std::string>{});
}

TEST_CASE("includes that the rooms do not allow are reported", "[rooms]") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((folder.path() / name).parent_path());
    write_file(folder.path() / name, text);
  };
  write("src/attention/CMakeLists.txt", "mini_public_headers(mini_transformer\n  attention.h)\n");
  write("src/attention/checks.h", "#include \"mini/attention.h\"\n");
  write("src/attention/attention.cpp",
        "#include \"attention/checks.h\"\n#include \"modules/linear.h\"\n#include <vector>\n");
  write("src/modules/linear.h", "#include \"attention/checks.h\"\n");
  write("src/kernels/exp.cpp", "#include \"hwy/highway.h\"\n#include <ATen/ATen.h>\n");
  write("include/mini/attention.h", "#include \"mini/unlisted.h\"\n#include \"mini/export.h\"\n");
  write("src/files/json.cpp", "#include \"mini/attention.h\"\n");
  write("apps/other/app.cpp", "#include \"modules/linear.h\"\n");

  CHECK(Tree(folder.path()).wrong_includes() ==
        std::vector<std::string>{
            "apps/other/app.cpp includes modules/linear.h: 'apps/other' is not a room",
            "include/mini/attention.h includes mini/unlisted.h: no room lists this header",
            "src/attention/attention.cpp includes modules/linear.h: "
            "src/modules is not below src/attention",
            "src/files/json.cpp includes mini/attention.h: src/attention is not below src/files",
            "src/kernels/exp.cpp includes ATen/ATen.h: src/kernels is free of LibTorch"});
}

TEST_CASE("no line is longer than 100 columns, and no comment line is broken", "[rooms]") {
  CHECK(wrong_lines(MINI_SOURCE) == std::vector<std::string>{});
}

TEST_CASE("long lines and broken comment lines are reported", "[rooms]") {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    fs::create_directories((folder.path() / name).parent_path());
    write_file(folder.path() / name, text);
  };
  const auto comment = [](const std::string& marker, size_t width) {
    return marker + " " + std::string(width - marker.size() - 1, 'x') + "\n";
  };
  std::string umlauts;
  for (int i = 0; i < 97; ++i) umlauts += "\u00e4";

  write("src/long.h", "// " + umlauts + "\n" + comment("//", 101) + "int x;\n");
  write("src/ignored.txt", comment("//", 101));
  write("tests/broken.cpp", comment("  ///", 95) + "  /// two words.\n  /// Next sentence.\n");
  write("include/kept.h", comment("//", 94) + "// brings.\n// The line above was not full.\n\n" +
                              comment("//", 96) + "// brings.\n//\n// The paragraph ended.\n\n" +
                              comment("//", 96) + "// brings.\nint the_block_ended;\n\n" +
                              comment("//", 96) + "// three short words\n// Enough text.\n\n" +
                              comment("//", 96) + "/// brings.\n/// Another marker.\n\n" +
                              "int x;  " + comment("//", 90) + "// brings.\n// After code.\n");

  CHECK(wrong_lines(folder.path()) ==
        std::vector<std::string>{"src/long.h:2: 101 columns",
                                 "tests/broken.cpp:2: broken comment line \"two words.\""});
}

}  // namespace mini::test
