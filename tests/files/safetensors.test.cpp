// SPDX-License-Identifier: MIT
#include "mini/safetensors.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "support/files.h"
#include "support/safetensors_files.h"
#include "support/support.h"

namespace fs = std::filesystem;
using mini::load_safetensors;
using mini::save_safetensors;
using mini::test::bytes_of;
using mini::test::check_same;
using mini::test::dict;
using mini::test::Equals;
using mini::test::Metadata;
using mini::test::model;
using mini::test::private_memory;
using mini::test::read_file;
using mini::test::safetensors_file;
using mini::test::TemporaryFolder;
using mini::test::Tensors;
using mini::test::write_file;

TEST_CASE("safetensors files keep tensors of every type bit for bit", "[safetensors]") {
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

TEST_CASE("safetensors files keep scalars, empty tensors, special values and metadata",
          "[safetensors]") {
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

TEST_CASE("save_safetensors packs tensors of any strides", "[safetensors]") {
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

TEST_CASE("save_safetensors writes a shared tensor under each of its names", "[safetensors]") {
  const TemporaryFolder folder;
  const at::Tensor weight = at::arange(6, at::kFloat).view({2, 3});
  save_safetensors(folder / "a",
                   dict({{"head", weight}, {"embedding", weight}, {"row", weight[1]}}));
  const Tensors loaded = load_safetensors(folder / "a").tensors;
  CHECK_THAT(loaded["head"], Equals(weight));
  CHECK_THAT(loaded["embedding"], Equals(weight));
  CHECK_THAT(loaded["row"], Equals(weight[1]));
}

TEST_CASE("the order of the tensors does not change the bytes of the file", "[safetensors]") {
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

TEST_CASE("writing to a loaded tensor changes neither the file nor other loads", "[safetensors]") {
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

TEST_CASE("a loaded tensor stays valid without the other tensors and the file", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  const at::Tensor b = load_safetensors(folder / "a").tensors["b"];
  fs::remove(folder / "a");
  CHECK_THAT(b, Equals(model(1)["b"]));
}

TEST_CASE("load_safetensors allocates no memory for the data", "[safetensors]") {
  constexpr std::int64_t kBytes = 64 << 20;
  const TemporaryFolder folder;
  std::string header = R"({"a":{"dtype":"F32","shape":[16777216],"data_offsets":[0,67108864]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');  // aligned, so that the floats are not copied
  write_file(folder / "a", safetensors_file(header));
  fs::resize_file(folder / "a", fs::file_size(folder / "a") + kBytes);  // filled with zeros
  at::ones({1000}).sum();
  const std::int64_t before = private_memory();
  const Tensors loaded = load_safetensors(folder / "a").tensors;
  CHECK(loaded["a"].sum().item<float>() == 0);
  CHECK(private_memory() - before < kBytes / 8);
}

TEST_CASE("load_safetensors copies tensors at unaligned offsets", "[safetensors]") {
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

TEST_CASE("load_safetensors reads every byte of a BOOL tensor except 0 as true", "[safetensors]") {
  const TemporaryFolder folder;
  write_file(folder / "a", safetensors_file(R"({"m":{"dtype":"BOOL","shape":[2,2],)"
                                            R"("data_offsets":[0,4]}})",
                                            std::string("\0\1\2\xff", 4)));
  const at::Tensor mask = load_safetensors(folder / "a").tensors["m"];
  CHECK(bytes_of(mask) == std::string("\0\1\1\1", 4));
  CHECK(mask.sizes() == at::IntArrayRef({2, 2}));
}

TEST_CASE("saving over a loaded file does not change the loaded tensors", "[safetensors]") {
  const TemporaryFolder folder;
  save_safetensors(folder / "a", model(1));
  const Tensors loaded = load_safetensors(folder / "a").tensors;

  save_safetensors(folder / "a", model(2));
  check_same(loaded, model(1));
  check_same(load_safetensors(folder / "a").tensors, model(2));

  save_safetensors(folder / "a", loaded);  // reads from the file that it replaces
  check_same(loaded, model(1));
  check_same(load_safetensors(folder / "a").tensors, model(1));
}
