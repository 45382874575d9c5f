#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "checkpoint/test_checkpoints.h"

namespace coprime {
namespace {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

// Parses `header` as of a file with `data_bytes` behind it.
std::vector<TensorInfo> parse(const std::string& header, uint64_t data_bytes) {
  return parse_safetensors_header(header, 8 + header.size() + data_bytes, "model.safetensors");
}

AssertionResult refused(const std::string& header, uint64_t data_bytes, const std::string& part) {
  const std::string message = model_error([&] { parse(header, data_bytes); });
  if (message.empty()) return AssertionFailure() << "accepted " << header.substr(0, 200);
  if (message.find(part) == std::string::npos) return AssertionFailure() << '"' << message << "\" lacks " << part;
  return AssertionSuccess();
}

TEST(SafetensorsHeader, a_sound_one_gives_its_tensors_in_file_order) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[6,14]},)"
      R"("a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},"s":{"dtype":"I64","shape":[],"data_offsets":[14,22]}}   )";
  const auto tensors = parse(header, 22);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].type, DType::kBF16);
  EXPECT_EQ(tensors[0].offset, 8 + header.size());
  EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(tensors[2].bytes, 8u);
  EXPECT_TRUE(parse("{}", 0).empty());
}

TEST(SafetensorsHeader, every_type_of_the_format_is_sized) {
  const std::pair<const char*, int> types[] = {
      {"BOOL", 8}, {"U8", 8},   {"I8", 8},    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},
      {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32},    {"U32", 32},    {"F32", 32},    {"C64", 64},
      {"F64", 64}, {"I64", 64}, {"U64", 64},  {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}};
  for (const auto& [name, bits] : types) {
    const uint64_t bytes = static_cast<uint64_t>(bits);  // of 8 elements
    const std::string header =
        fmt::format(R"({{"x":{{"dtype":"{}","shape":[2,4],"data_offsets":[0,{}]}}}})", name, bytes);
    const auto tensors = parse(header, bytes);
    EXPECT_EQ(tensors.at(0).type_name, name);
    EXPECT_EQ(tensors.at(0).bytes, bytes);
  }
  EXPECT_EQ(parse(R"({"x":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", 1).at(0).type, DType::kOther);
  EXPECT_TRUE(refused(R"({"x":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1, "whole number of bytes"));
  EXPECT_TRUE(refused(R"({"x":{"dtype":"F6_E2M3","shape":[2],"data_offsets":[0,1]}})", 1, "whole number of bytes"));
}

TEST(SafetensorsHeader, hostile_ones_are_refused_each_for_its_reason) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"x":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_TRUE(refused("", 0, "cut short"));
  EXPECT_TRUE(refused("{", 0, "not JSON"));
  EXPECT_TRUE(refused("[]", 0, "expected an object"));
  EXPECT_TRUE(refused("{}x", 0, "not JSON"));
  EXPECT_TRUE(refused("{}", 1, "the file holds 1 bytes"));
  EXPECT_TRUE(refused(R"({"x":7})", 0, "x is 7"));
  EXPECT_TRUE(refused(R"({"x":{}})", 0, "dtype missing"));
  EXPECT_TRUE(refused(R"({"__metadata__":{"a":1}})", 0, "__metadata__.a is 1"));
  EXPECT_TRUE(refused(R"({"__metadata__":[]})", 0, "__metadata__ is []"));
  EXPECT_TRUE(refused(one("\"F33\"", "[1]", "[0,4]"), 4, "dtype F33"));
  EXPECT_TRUE(refused(one("7", "[1]", "[0,4]"), 4, "dtype is 7"));
  EXPECT_TRUE(refused(one("\"F32\"", "[-1]", "[0,4]"), 4, "holds -1"));
  EXPECT_TRUE(refused(one("\"F32\"", "[1.0]", "[0,4]"), 4, "holds 1.0"));
  EXPECT_TRUE(refused(one("\"F32\"", "1", "[0,4]"), 4, "shape is 1"));
  EXPECT_TRUE(refused(one("\"F32\"", "[[1]]", "[0,4]"), 4, "holds [1]"));
  EXPECT_TRUE(refused(one("\"F32\"", "[2]", "[0,4]"), 4, "needs 8"));
  EXPECT_TRUE(refused(one("\"F32\"", "[0]", "[0,4]"), 4, "needs 0"));
  EXPECT_TRUE(refused(one("\"F32\"", "[9223372036854775807,9223372036854775807]", "[0,4]"), 4, "larger than any file"));
  EXPECT_TRUE(refused(one("\"F32\"", "[18446744073709551615]", "[0,4]"), 4, "holds 18446744073709551615"));
  EXPECT_TRUE(
      refused(one("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, "larger than any file"));  // 2^64 wraps to 0
  EXPECT_TRUE(refused(one("\"F32\"", "[1]", "[4,0]"), 4, "[4, 0)"));
  EXPECT_TRUE(refused(one("\"F32\"", "[1]", "[0,8]"), 4, "cut short"));
  EXPECT_TRUE(refused(one("\"F32\"", "[1]", "[0]"), 4, "pair of data_offsets"));
  EXPECT_TRUE(refused(one("\"F32\"", "[1]", "[0,4,8]"), 4, "pair of data_offsets"));
  EXPECT_TRUE(refused(one("\"F32\"", "[1]", "[-4,0]"), 4, "holds -4"));
  EXPECT_TRUE(refused(one("\"F32\"", "[1]", "[4,8]"), 8, "a hole"));
  EXPECT_TRUE(refused(one("\"F32\"", "[1]", "[0,4]"), 8, "the file holds 8"));
  EXPECT_TRUE(refused(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"dtype":"F32"}})", 4, "twice"));
  EXPECT_TRUE(refused(
      R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
      4, "twice"));
  EXPECT_TRUE(refused(
      R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})", 6,
      "overlap"));
  EXPECT_TRUE(refused(
      R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"y":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4,
      "overlap"));
  std::string deep = "{}";
  for (int i = 0; i < 10000; ++i) deep = "{\"x\":" + deep + "}";
  EXPECT_TRUE(refused(deep, 0, "not JSON"));
}

// A header with bytes changed, cut out or doubled is refused, or read as what it then says; never a crash. Bounded.
TEST(SafetensorsHeader, damaged_ones_never_crash) {
  const std::string sound =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[3,2],"data_offsets":[0,12]},)"
      R"("b":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})";
  ASSERT_EQ(parse(sound, 20).size(), 2u);
  std::mt19937 random(7);
  int refusals = 0;
  for (int i = 0; i < 40000; ++i) {
    std::string header = sound;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0 && !header.empty(); --edits) {
      const size_t at = random() % header.size();
      switch (random() % 4) {
        case 0:
          header[at] = static_cast<char>(random());
          break;
        case 1:
          header.erase(at, 1 + random() % 6);
          break;
        case 2:
          header.insert(at, header.substr(random() % header.size(), random() % 24));
          break;
        default:
          header[at] = "0123456789-{}[]\",:e."[random() % 20];
          break;
      }
    }
    const std::string message = model_error([&] {
      for (const TensorInfo& tensor : parse(header, 20))
        ASSERT_LE(tensor.offset + tensor.bytes, 8 + header.size() + 20);
    });
    EXPECT_FALSE(message.starts_with("wrong kind")) << message;
    if (!message.empty()) ++refusals;
  }
  EXPECT_GT(refusals, 20000);
}

class SafetensorsFileTest : public testing::Test {
 protected:
  std::string open_error() {
    return model_error([&] { SafetensorsFile::open(path_); });
  }
  TemporaryFolder folder_;
  const std::filesystem::path path_ = folder_ / "model.safetensors";
};

TEST_F(SafetensorsFileTest, what_was_written_is_read_back_aligned) {
  TensorMap tensors;
  tensors["half"] = {DType::kF16, {3}, std::vector<std::byte>(6, std::byte{1})};
  tensors["wide"] = {DType::kI64, {2}, std::vector<std::byte>(16, std::byte{2})};
  tensors["scalar"] = {DType::kF32, {}, std::vector<std::byte>(4, std::byte{3})};
  tensors["empty"] = {DType::kF32, {0, 5}, {}};
  tensors["a \"quoted\"\n name"] = {DType::kU8, {1}, std::vector<std::byte>(1, std::byte{4})};
  write_tensors(path_, tensors);
  const SafetensorsFile file = SafetensorsFile::open(path_);
  EXPECT_EQ(file.tensors().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const TensorInfo* info = file.find(name);
    ASSERT_NE(info, nullptr) << name;
    EXPECT_EQ(info->type, tensor.type);
    EXPECT_EQ(info->shape, tensor.shape);
    EXPECT_EQ(info->offset % static_cast<uint64_t>(dtype_bytes(tensor.type)), 0u);
    std::vector<std::byte> bytes(info->bytes);
    file.read(info->offset, bytes);
    EXPECT_EQ(bytes, tensor.bytes);
  }
  EXPECT_EQ(file.find("none"), nullptr);
}

TEST_F(SafetensorsFileTest, files_that_are_none_are_refused) {
  EXPECT_NE(open_error().find("No such file"), std::string::npos);
  write_bytes(path_, "");
  EXPECT_NE(open_error().find("0 bytes; too short"), std::string::npos);
  write_bytes(path_, std::string("\x02\0\0\0\0\0\0\0", 8));
  EXPECT_NE(open_error().find("a header of 2 bytes in a file of 8"), std::string::npos);
  write_bytes(path_, std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10));
  EXPECT_NE(open_error().find("a header of 18446744073709551615 bytes"), std::string::npos);
  write_bytes(path_, std::string("\x03\0\0\0\0\0\0\0 {}", 11));
  EXPECT_NE(open_error().find("does not start with '{'"), std::string::npos);
  write_sparse(path_, "{}" + std::string(100'000'001, ' '), 0);
  EXPECT_NE(open_error().find("at most 100000000"), std::string::npos);
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_NE(open_error().find("not a regular file"), std::string::npos);
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);  // opening must not wait for a writer
  EXPECT_NE(open_error().find("not a regular file"), std::string::npos);
}

TEST_F(SafetensorsFileTest, every_truncation_is_refused_when_opened) {
  TensorMap tensors;
  tensors["x"] = {DType::kF32, {4}, std::vector<std::byte>(16)};
  write_tensors(path_, tensors);
  for (auto size = std::filesystem::file_size(path_); size-- > 0;) {
    std::filesystem::resize_file(path_, size);
    EXPECT_NE(open_error(), "") << size;
  }
}

TEST_F(SafetensorsFileTest, a_file_that_shrinks_after_it_was_opened_is_an_error_of_the_read) {
  TensorMap tensors;
  tensors["x"] = {DType::kF32, {4}, std::vector<std::byte>(16)};
  write_tensors(path_, tensors);
  const SafetensorsFile file = SafetensorsFile::open(path_);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 3);
  std::vector<std::byte> bytes(16);
  const std::string message = model_error([&] { file.read(file.tensors()[0].offset, bytes); });
  EXPECT_NE(message.find("file shrank: expected 16 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("found 13"), std::string::npos) << message;
}

// A full disk, by a limit on the size of files: the old file stays, and no half one is left.
TEST_F(SafetensorsFileTest, a_write_that_fails_leaves_the_old_file_and_no_other) {
  TensorMap small, large;
  small["x"] = {DType::kU8, {4}, std::vector<std::byte>(4, std::byte{9})};
  large["x"] = {DType::kU8, {1 << 20}, std::vector<std::byte>(1 << 20)};
  write_tensors(path_, small);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limited = {1 << 16, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limited), 0);
  const std::string message = model_error([&] { write_tensors(path_, large); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("cannot be written: File too large"), std::string::npos) << message;
  EXPECT_EQ(SafetensorsFile::open(path_).tensors()[0].bytes, 4u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 1);
}

TEST_F(SafetensorsFileTest, a_folder_that_does_not_exist_is_an_error_of_the_write) {
  const std::string message = model_error([&] { write_tensors(folder_ / "none/x.safetensors", {}); });
  EXPECT_NE(message.find("there is no folder"), std::string::npos) << message;
}

}  // namespace
}  // namespace coprime
