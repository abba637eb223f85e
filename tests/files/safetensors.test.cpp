// SPDX-License-Identifier: MIT
#include "mini/safetensors.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "support/error_of.h"
#include "support/files.h"
#include "support/support.h"

namespace fs = std::filesystem;
using mini::load_safetensors;
using mini::save_safetensors;
using mini::test::ContainsSubstring;
using mini::test::Equals;
using mini::test::error_of;
using mini::test::in_child;
using mini::test::in_unprivileged_child;
using mini::test::mutate;
using mini::test::private_memory;
using mini::test::read_file;
using mini::test::require_error;
using mini::test::safetensors_file;
using mini::test::TemporaryFolder;
using mini::test::write_file;

namespace {

using Tensors = torch::OrderedDict<std::string, at::Tensor>;
using Metadata = std::map<std::string, std::string>;

Tensors dict(std::vector<std::pair<std::string, at::Tensor>> items) {
  Tensors tensors;
  for (auto& [name, tensor] : items) tensors.insert(name, tensor);
  return tensors;
}

/// The elements' bytes, so that NaNs and types without arithmetic compare too.
std::string bytes_of(const at::Tensor& tensor) {
  const at::Tensor packed = tensor.contiguous();
  return {static_cast<const char*>(packed.const_data_ptr()), packed.nbytes()};
}

void check_same(const at::Tensor& actual, const at::Tensor& expected) {
  CHECK(actual.scalar_type() == expected.scalar_type());
  CHECK(actual.sizes() == expected.sizes());
  CHECK(bytes_of(actual) == bytes_of(expected));
}

void check_same(const Tensors& actual, const Tensors& expected) {
  REQUIRE(actual.size() == expected.size());
  for (const auto& item : expected) {
    INFO(item.key());
    REQUIRE(actual.contains(item.key()));
    check_same(actual[item.key()], item.value());
  }
}

std::string error_of_loading(const fs::path& path) {
  return error_of([&] { load_safetensors(path); });
}

/// Three tensors of 1000 floats, told apart by `seed`.
Tensors model(int seed) {
  const at::Tensor numbers = at::arange(3000, at::kFloat).view({3, 1000}) + 10'000 * seed;
  return dict({{"a", numbers[0]}, {"b", numbers[1]}, {"c", numbers[2]}});
}

}  // namespace

TEST_CASE("tensors of every type come back bit for bit", "[safetensors]") {
  const std::vector<at::ScalarType> types = {at::kBool,
                                             at::kByte,
                                             at::kChar,
                                             at::kUInt16,
                                             at::kShort,
                                             at::kUInt32,
                                             at::kInt,
                                             at::kUInt64,
                                             at::kLong,
                                             at::kHalf,
                                             at::kBFloat16,
                                             at::kFloat,
                                             at::kDouble,
                                             at::kComplexFloat,
                                             at::kFloat8_e4m3fn,
                                             at::kFloat8_e5m2,
                                             at::kFloat8_e4m3fnuz,
                                             at::kFloat8_e5m2fnuz,
                                             at::kFloat8_e8m0fnu,
                                             at::kFloat4_e2m1fn_x2};
  const TemporaryFolder folder;
  Tensors tensors;
  for (const at::ScalarType type : types) {
    const auto width = static_cast<std::int64_t>(c10::elementSize(type));
    const at::Tensor bytes = at::arange(15 * width, at::kInt).mul(37).remainder(256).to(at::kByte);
    const at::Tensor elements = type == at::kBool ? bytes.gt(99) : bytes.view(type);
    tensors.insert(c10::toString(type), elements.view({3, 5}));
  }
  save_safetensors(folder / "all", tensors);
  check_same(load_safetensors(folder / "all").tensors, tensors);
}

TEST_CASE("scalars, empty tensors, special values and metadata come back", "[safetensors]") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const TemporaryFolder folder;
  const Tensors tensors = dict({{"scalar", at::scalar_tensor(3.5)},
                                {"empty", at::empty({0})},
                                {"no_columns", at::empty({2, 0}, at::kLong)},
                                {"special", at::tensor({NAN, kInfinity, -kInfinity, -0.0F})},
                                {"grüße\n\"\\", at::ones({1})},
                                {"", at::ones({2})}});
  const Metadata metadata = {{"format", "pt"}, {"", ""}, {"ü", "line\nbreak"}};
  save_safetensors(folder / "a", tensors, metadata);
  check_same(load_safetensors(folder / "a").tensors, tensors);
  CHECK(load_safetensors(folder / "a").metadata == metadata);

  save_safetensors(folder / "nothing", Tensors());
  CHECK(load_safetensors(folder / "nothing").tensors.is_empty());
  CHECK(load_safetensors(folder / "nothing").metadata.empty());
}

TEST_CASE("tensors of any strides are packed", "[safetensors]") {
  const TemporaryFolder folder;
  const at::Tensor matrix = at::arange(24, at::kFloat).view({4, 6});
  const at::Tensor images = at::arange(48, at::kFloat).view({2, 3, 2, 4});
  const at::Tensor complex = at::complex(matrix, matrix + 0.5);
  const Tensors tensors =
      dict({{"transposed", matrix.t()},
            {"columns", matrix.slice(1, 1, 6, 2)},
            {"expanded", at::arange(3, at::kFloat).view({3, 1}).expand({3, 4})},
            {"channels_last", images.contiguous(at::MemoryFormat::ChannelsLast)},
            {"half", matrix.to(at::kHalf).t()},
            {"float8", matrix.to(at::kFloat8_e4m3fn).t()},
            {"conjugate", complex.conj()},
            {"negative", at::_neg_view(matrix)},
            {"parameter", matrix.clone().requires_grad_()}});
  save_safetensors(folder / "a", tensors);
  const Tensors loaded = load_safetensors(folder / "a").tensors;
  check_same(loaded["channels_last"], tensors["channels_last"]);
  check_same(loaded["float8"], tensors["float8"]);
  for (const char* name : {"transposed", "columns", "expanded", "half", "parameter"}) {
    INFO(name);
    CHECK(loaded[name].is_contiguous());
    CHECK_THAT(loaded[name], Equals(tensors[name]));
  }
  CHECK(at::equal(loaded["conjugate"], complex.conj().resolve_conj()));
  CHECK_THAT(loaded["negative"], Equals(-matrix));
  CHECK_FALSE(loaded["parameter"].requires_grad());
}

TEST_CASE("tied tensors are written under each of their names", "[safetensors]") {
  const TemporaryFolder folder;
  const at::Tensor weight = at::arange(6, at::kFloat).view({2, 3});
  save_safetensors(folder / "a",
                   dict({{"head", weight}, {"embedding", weight}, {"row", weight[1]}}));
  const Tensors loaded = load_safetensors(folder / "a").tensors;
  CHECK_THAT(loaded["head"], Equals(weight));
  CHECK_THAT(loaded["embedding"], Equals(weight));
  CHECK_THAT(loaded["row"], Equals(weight[1]));
}

TEST_CASE("the same tensors give the same bytes, in whatever order they come", "[safetensors]") {
  const TemporaryFolder folder;
  const at::Tensor flag = at::ones({3}, at::kBool), weight = at::rand({5}),
                   half = at::ones({3}, at::kHalf);
  save_safetensors(folder / "a", dict({{"flag", flag}, {"half", half}, {"weight", weight}}),
                   {{"x", "1"}, {"y", "2"}});
  save_safetensors(folder / "b", dict({{"weight", weight}, {"half", half}, {"flag", flag}}),
                   {{"y", "2"}, {"x", "1"}});
  CHECK(read_file(folder / "a") == read_file(folder / "b"));
  for (const auto& item : load_safetensors(folder / "a").tensors) {
    INFO(item.key());
    const auto address = reinterpret_cast<std::uintptr_t>(item.value().const_data_ptr());
    CHECK(address % item.value().element_size() == 0);
  }
}

TEST_CASE("writing to a loaded tensor leaves the file and other loads alone", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  const std::string before = read_file(folder / "a");
  const Tensors first = load_safetensors(folder / "a").tensors;
  const Tensors second = load_safetensors(folder / "a").tensors;
  first["b"].fill_(7);
  CHECK_THAT(first["b"], Equals(at::full({1000}, 7)));
  check_same(first["a"], model(1)["a"]);
  check_same(second, model(1));
  CHECK(read_file(folder / "a") == before);
}

TEST_CASE("a loaded tensor lives on without the others and without the file", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  const at::Tensor b = load_safetensors(folder / "a").tensors["b"];
  fs::remove(folder / "a");
  CHECK_THAT(b, Equals(model(1)["b"]));
}

TEST_CASE("loading takes no memory of its own", "[safetensors]") {
  constexpr std::int64_t kBytes = 64 << 20;
  const TemporaryFolder folder;
  std::string header = R"({"a":{"dtype":"F32","shape":[16777216],"data_offsets":[0,67108864]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // or the floats would be copied, unaligned
  write_file(folder / "a", safetensors_file(header));
  fs::resize_file(folder / "a", fs::file_size(folder / "a") + kBytes);  // with zeros
  at::ones({1000}).sum();
  const std::int64_t before = private_memory();
  const Tensors loaded = load_safetensors(folder / "a").tensors;
  CHECK(loaded["a"].sum().item<float>() == 0);
  CHECK(private_memory() - before < kBytes / 8);
}

TEST_CASE("tensors at unaligned offsets are copied", "[safetensors]") {
  const TemporaryFolder folder;
  const std::string floats = bytes_of(at::tensor({1.0F, 2.0F}));
  const std::string header = R"({"byte":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("floats":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  for (const char* padding : {"", " ", "  ", "   "}) {
    write_file(folder / "a", safetensors_file(header + padding, "x" + floats));
    const Tensors loaded = load_safetensors(folder / "a").tensors;
    CHECK(reinterpret_cast<std::uintptr_t>(loaded["floats"].const_data_ptr()) % 4 == 0);
    CHECK_THAT(loaded["floats"], Equals(at::tensor({1.0F, 2.0F})));
    CHECK_THAT(loaded["byte"], Equals(at::full({1}, 'x', at::kByte)));
  }
}

TEST_CASE("every byte but 0 is true", "[safetensors]") {
  const TemporaryFolder folder;
  write_file(folder / "a", safetensors_file(R"({"m":{"dtype":"BOOL","shape":[2,2],)"
                                            R"("data_offsets":[0,4]}})",
                                            std::string("\0\1\2\xff", 4)));
  const at::Tensor mask = load_safetensors(folder / "a").tensors["m"];
  CHECK(bytes_of(mask) == std::string("\0\1\1\1", 4));
  CHECK(mask.sizes() == at::IntArrayRef({2, 2}));
}

TEST_CASE("a bad file is refused with its path and the tensor's name", "[safetensors]") {
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

TEST_CASE("a saved file cut off anywhere is refused", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", dict({{"a", at::rand({3})}, {"b", at::rand({2})}}), {{"k", "v"}});
  const std::string whole = read_file(folder / "a");
  for (std::size_t size = 0; size < whole.size(); ++size) {
    INFO(size);
    write_file(folder / "cut", whole.substr(0, size));
    CHECK_FALSE(error_of_loading(folder / "cut").empty());
  }
}

TEST_CASE("a file with ten thousand random faults is refused or read as it is", "[safetensors]") {
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
        if (item.value().scalar_type() == at::kBool) {  // bytes over 1 are read as 1
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

TEST_CASE("what cannot be saved is named, and the old file kept", "[safetensors]") {
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

TEST_CASE("an error at the third tensor leaves the old file", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  Tensors next = model(2);
  next["c"] = next["c"].clone();  // with a storage of its own, which fails when it is read
  next["c"].storage().unsafeGetStorageImpl()->release_data_and_set_meta_custom_data_ptr_error_msg_(
      "the third tensor fails");
  CHECK_THAT(error_of([&] { save_safetensors(folder / "a", next); }),
             ContainsSubstring("the third tensor fails"));
  check_same(load_safetensors(folder / "a").tensors, model(1));
  CHECK(folder.entries() == std::set<std::string>{"a"});
}

TEST_CASE("a kill in the middle of a save leaves the old file", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  const Tensors next = model(2);
  const int status = in_child([&] {
    ::signal(SIGXFSZ, [](int) { ::raise(SIGKILL); });  // sent by the write past the limit
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

TEST_CASE("a full disk or a closed folder is an error and leaves the old file", "[safetensors]") {
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

TEST_CASE("saving over a loaded file keeps the loaded tensors", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  const Tensors loaded = load_safetensors(folder / "a").tensors;

  save_safetensors(folder / "a", model(2));
  check_same(loaded, model(1));
  check_same(load_safetensors(folder / "a").tensors, model(2));

  save_safetensors(folder / "a", loaded);  // from the file that is replaced meanwhile
  check_same(loaded, model(1));
  check_same(load_safetensors(folder / "a").tensors, model(1));
}
