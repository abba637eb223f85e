// SPDX-License-Identifier: MIT
// Files that load_safetensors refuses, and saves that fail or are interrupted.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <random>
#include <set>
#include <string>

#include "mini/safetensors.h"
#include "support/error_of.h"
#include "support/files.h"
#include "support/safetensors_files.h"
#include "support/support.h"

namespace fs = std::filesystem;
using mini::load_safetensors;
using mini::save_safetensors;
using mini::test::bytes_of;
using mini::test::check_same;
using mini::test::ContainsSubstring;
using mini::test::dict;
using mini::test::error_of;
using mini::test::in_child;
using mini::test::in_unprivileged_child;
using mini::test::model;
using mini::test::mutate;
using mini::test::read_file;
using mini::test::require_error;
using mini::test::safetensors_file;
using mini::test::TemporaryFolder;
using mini::test::Tensors;
using mini::test::write_file;

namespace {

std::string error_of_loading(const fs::path& path) {
  return error_of([&] { load_safetensors(path); });
}

}  // namespace

TEST_CASE("load_safetensors names the path and the tensor that violates the format",
          "[safetensors]") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& bytes) {
    write_file(folder / "bad", bytes);
    return error_of_loading(folder / "bad");
  };
  const std::string path = "load_safetensors: " + (folder / "bad").string() + ": ";
  CHECK_THAT(error(safetensors_file(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
                                    "12345678")),
             ContainsSubstring(path + "tensor 'a': F32 [3] needs 12 bytes"));
  CHECK_THAT(error(safetensors_file(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],)"
                                    R"("data_offsets":[0,0]}})")),
             ContainsSubstring(path + "tensor 'a': F32 [4294967296,4294967296] overflows"));
  CHECK_THAT(error(safetensors_file(R"({"a":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[0,3]}})",
                                    "123")),
             ContainsSubstring(path + "tensor 'a': LibTorch has no type for F6_E2M3"));
  CHECK_THAT(
      error(safetensors_file(R"({"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}})", "123")),
      ContainsSubstring("the last dimension of F4 [2, 3] must be even"));
  CHECK_THAT(error(""), ContainsSubstring(path + "expected at least 8 bytes"));
  CHECK_THAT(error_of_loading(folder / "none"),
             ContainsSubstring("cannot read '" + (folder / "none").string() +
                               "': No such file or directory"));
  CHECK_THAT(error_of_loading(folder.path()), ContainsSubstring("is not a regular file"));
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_THAT(error_of_loading(folder / "pipe"), ContainsSubstring("is not a regular file"));
}

TEST_CASE("load_safetensors refuses a file that is cut off anywhere", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", dict({{"a", at::rand({3})}, {"b", at::rand({2})}}), {{"k", "v"}});
  const std::string whole = read_file(folder / "a");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    write_file(folder / "cut", whole.substr(0, size));
    CHECK_FALSE(error_of_loading(folder / "cut").empty());
  }
}

TEST_CASE("load_safetensors refuses a damaged file or returns its bytes unchanged",
          "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "good",
                   dict({{"weight", at::rand({2, 3})},
                         {"mask", at::ones({3}, at::kBool)},
                         {"half", at::rand({5}).to(at::kBFloat16)},
                         {"empty", at::empty({2, 0})},
                         {"count", at::scalar_tensor(7, at::kLong)}}),
                   {{"format", "pt"}});
  const std::string good = read_file(folder / "good");
  std::mt19937 random(42);
  int read = 0;
  for (int i = 0; i < 10'000; ++i) {
    INFO("mutation " << i);
    const std::string file = mutate(good, random);
    write_file(folder / "a", file);
    try {
      std::string data;
      for (const auto& item : load_safetensors(folder / "a").tensors) {
        if (item.value().scalar_type() == at::kBool) {  // bytes above 1 become 1
          data += file.substr(file.size() - data.size() - item.value().nbytes());
        } else {
          data += bytes_of(item.value());
        }
      }
      ++read;
    } catch (const c10::Error& error) {
      REQUIRE(std::string(error.what_without_backtrace()).starts_with("load_safetensors: "));
    }
  }
  CHECK(read > 100);
}

TEST_CASE("save_safetensors names the tensor it cannot write and keeps the old file",
          "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  const auto error = [&](const std::string& name, const at::Tensor& tensor) {
    return error_of([&] { save_safetensors(folder / "a", dict({{name, tensor}})); });
  };
  const at::Tensor one = at::ones({1});
  CHECK_THAT(error("t", at::Tensor()), ContainsSubstring("tensor 't' is undefined"));
  CHECK_THAT(error("t", one.to(at::kMeta)), ContainsSubstring("tensor 't' has no memory (meta)"));
  CHECK_THAT(error("t", one.to_sparse()),
             ContainsSubstring("tensor 't' must be dense, got Sparse"));
  CHECK_THAT(error("t", one.to(at::kComplexDouble)),
             ContainsSubstring("tensor 't': the format has no name for ComplexDouble"));
  CHECK_THAT(error("__metadata__", one), ContainsSubstring("is reserved for the metadata"));
  CHECK_THAT(error("\xff", one), ContainsSubstring("UTF-8"));
  CHECK_THAT(error(std::string("\0", 1), one), ContainsSubstring("contains a NUL"));
  check_same(load_safetensors(folder / "a").tensors, model(1));
}

TEST_CASE("an error at the third tensor keeps the old file", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  Tensors next = model(2);
  next["c"] = next["c"].clone();  // its own storage, which throws when it is read
  next["c"].storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "the third tensor fails");
  CHECK_THAT(error_of([&] { save_safetensors(folder / "a", next); }),
             ContainsSubstring("the third tensor fails"));
  check_same(load_safetensors(folder / "a").tensors, model(1));
  CHECK(folder.entries() == std::set<std::string>{"a"});
}

TEST_CASE("a kill during save_safetensors keeps the old file", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  const Tensors next = model(2);
  const int status = in_child([&] {
    ::signal(SIGXFSZ, [](int) { ::raise(SIGKILL); });  // a write past the limit raises SIGXFSZ
    const rlimit within_the_second_tensor = {6000, 6000};
    ::setrlimit(RLIMIT_FSIZE, &within_the_second_tensor);
    save_safetensors(folder / "a", next);
  });
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGKILL);
  check_same(load_safetensors(folder / "a").tensors, model(1));
  for (const std::string& name : folder.entries()) {
    CHECK((name == "a" || (name.starts_with('.') && name.ends_with(".tmp"))));
  }
}

TEST_CASE("a full disk or a read-only folder is an error that keeps the old file",
          "[safetensors]") {
  const TemporaryFolder folder;
  fs::create_directory(folder / "closed");
  save_safetensors(folder / "closed/a", model(1));
  ::chmod(folder.path().c_str(), 0755);
  ::chmod((folder / "closed").c_str(), 0555);
  const Tensors next = model(2);

  const int closed = in_unprivileged_child([&] {
    require_error(error_of([&] { save_safetensors(folder / "closed/a", next); }),
                  "closed/a': Permission denied");
    require_error(error_of([&] { save_safetensors("/dev/full", next); }),
                  "save_safetensors: cannot write '/dev/full': No space left on device");
  });
  CHECK(closed == 0);
  const int full = in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit within_the_second_tensor = {6000, 6000};
    ::setrlimit(RLIMIT_FSIZE, &within_the_second_tensor);
    require_error(error_of([&] { save_safetensors(folder / "closed/a", next); }),
                  "closed/a': File too large");
  });
  CHECK(full == 0);

  check_same(load_safetensors(folder / "closed/a").tensors, model(1));
  CHECK(fs::exists(folder / "closed/a"));
  CHECK(std::distance(fs::directory_iterator(folder / "closed"), {}) == 1);
}
