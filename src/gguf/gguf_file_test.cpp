// Sound files are read as they are; every malformed one is an Error(kModel) that says where and what.
#include "gguf/gguf_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <bit>
#include <random>

#include "base/error.h"
#include "gguf/test_files.h"

namespace coprime {
namespace {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

class GgufFiles : public testing::Test {
 protected:
  GgufFile open(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return GgufFile::open(path_);
  }
  // The message of the Error(kModel) that opening gives, or reading with `then`.
  template <class Then>
  std::string error(const std::string& bytes, const Then& then) {
    try {
      then(open(bytes));
    } catch (const Error& error) {
      const std::string text = error.what();
      const bool sound =
          error.kind() == ErrorKind::kModel && text.find('\n') == text.npos && text.find(path_.string()) != text.npos;
      return sound ? text : "wrong kind, many lines, or no file: " + text;
    }
    return "";
  }
  AssertionResult refused(const std::string& bytes, const std::string& part) {
    const std::string message = error(bytes, [](const GgufFile&) {});
    if (message.empty()) return AssertionFailure() << "accepted";
    if (message.find(part) == message.npos) return AssertionFailure() << '"' << message << "\" lacks " << part;
    return AssertionSuccess();
  }
  AssertionResult refused(const GgufBuilder& file, const std::string& part) { return refused(file.bytes(), part); }

  const MemoryFile file_;
  const std::filesystem::path path_ = file_.path();
};

// Two tensors: 64 x 2 of Q4_1, and three floats.
GgufBuilder sound() {
  GgufBuilder file;
  file.text("general.architecture", "llama").u32("llama.block_count", 3).f32("llama.epsilon", 0.5f);
  file.boolean("flag", true).texts("words", {"a", "", "ccc"}).integers("numbers", {1, -2, 3});
  file.scalar("large", GgufType::kU64, ~uint64_t{0}).scalar("small", GgufType::kI8, int8_t{-5});
  file.tensor("w", {64, 2}, 3, std::string(80, 'q')).tensor("v", {3}, 0, std::string(12, 'f'));
  return file;
}

TEST_F(GgufFiles, a_sound_one_gives_its_keys_and_tensors) {
  for (uint32_t version : {2, 3}) {
    const GgufFile file = open(sound().bytes(version));
    EXPECT_EQ(file.string("general.architecture"), "llama");
    EXPECT_EQ(file.integer("llama.block_count", 1, 3), 3);
    EXPECT_EQ(file.integer("small", -128, 127), -5);
    EXPECT_EQ(file.number("llama.epsilon"), 0.5);
    EXPECT_EQ(file.number("large"), 0x1p64);
    EXPECT_EQ(file.boolean("flag"), true);
    EXPECT_EQ(file.strings("words"), (std::vector<std::string>{"a", "", "ccc"}));
    EXPECT_EQ(file.integers("numbers"), (std::vector<int64_t>{1, -2, 3}));
    EXPECT_EQ(file.array_size("numbers"), 3u);
    EXPECT_EQ(file.string("none"), std::nullopt);
    EXPECT_EQ(file.strings("none"), std::nullopt);
    ASSERT_EQ(file.tensors().size(), 2u);
    const TensorInfo& w = file.tensors()[0];
    EXPECT_EQ(w.name, "w");
    EXPECT_EQ(w.type, DType::kQ4_1);
    EXPECT_EQ(w.type_name, "Q4_1");
    EXPECT_EQ(w.shape, (std::vector<int64_t>{2, 64}));
    EXPECT_EQ(w.bytes, 80u);
    EXPECT_EQ(w.offset % 32, 0u);
    const TensorInfo* v = file.find("v");
    ASSERT_NE(v, nullptr);
    EXPECT_EQ(v->shape, std::vector<int64_t>{3});
    EXPECT_EQ(v->offset, w.offset + 96);
    std::vector<std::byte> bytes(12);
    file.input().read(v->offset, bytes);
    EXPECT_EQ(bytes, std::vector<std::byte>(12, std::byte{'f'}));
  }
}

TEST_F(GgufFiles, a_file_cut_at_any_byte_is_refused) {
  const std::string whole = sound().bytes();
  const size_t needed = whole.size() - 20;  // the last tensor's padding may be missing
  for (size_t size = 0; size < needed; ++size) {
    const std::string message = error(whole.substr(0, size), [](const GgufFile&) {});
    ASSERT_NE(message, "") << "cut to " << size;
    ASSERT_EQ(message.find("wrong kind"), message.npos) << message;
  }
  EXPECT_EQ(error(whole.substr(0, needed), [](const GgufFile&) {}), "");
}

TEST_F(GgufFiles, another_beginning_is_refused) {
  EXPECT_TRUE(refused(std::string("GGUG") + sound().bytes().substr(4), "does not begin with \"GGUF\""));
  EXPECT_TRUE(refused(sound().bytes(1), "version 1; supported: 2 and 3"));
  EXPECT_TRUE(refused(sound().bytes(__builtin_bswap32(3)), "big-endian"));
  EXPECT_TRUE(refused(sound().bytes(4), "version 4"));
}

std::string with_counts(uint64_t tensors, uint64_t keys) {
  std::string file = sound().bytes();
  std::memcpy(file.data() + 8, &tensors, 8);
  std::memcpy(file.data() + 16, &keys, 8);
  return file;
}

TEST_F(GgufFiles, counts_that_the_file_cannot_hold_are_refused_at_once) {
  for (uint64_t count : {uint64_t{1} << 62, ~uint64_t{0}, uint64_t{100000}}) {
    EXPECT_TRUE(refused(with_counts(count, 8), "tensors in the"));
    EXPECT_TRUE(refused(with_counts(2, count), "keys in the"));
  }
}

TEST_F(GgufFiles, lengths_that_the_file_cannot_hold_are_refused) {
  for (uint64_t length : {uint64_t{1} << 62, ~uint64_t{0}, ~uint64_t{0} - 7, uint64_t{5000}}) {
    std::string text, array, inner;
    GgufBuilder::put(&text, length);
    text += "abc";
    EXPECT_TRUE(refused(sound().raw("k", GgufType::kString, text), fmt::format("claims {} bytes", length)));
    GgufBuilder::put(&array, uint32_t{4});
    GgufBuilder::put(&array, length);
    EXPECT_TRUE(refused(sound().raw("k", GgufType::kArray, array), fmt::format("claims {} elements", length)));
    GgufBuilder::put(&inner, uint32_t{8});
    GgufBuilder::put(&inner, uint64_t{1});
    GgufBuilder::put(&inner, length);
    EXPECT_TRUE(refused(sound().raw("k", GgufType::kArray, inner), "end within a string"));
  }
}

TEST_F(GgufFiles, values_of_no_known_kind_are_refused) {
  std::string nested;
  GgufBuilder::put(&nested, uint32_t{9});
  GgufBuilder::put(&nested, uint64_t{1});
  EXPECT_TRUE(refused(sound().raw("k", GgufType::kArray, nested), "k is an array of arrays"));
  EXPECT_TRUE(refused(sound().raw("k", static_cast<GgufType>(13), "12345678"), "k has the value type 13"));
  std::string strange;
  GgufBuilder::put(&strange, uint32_t{77});
  GgufBuilder::put(&strange, uint64_t{1});
  EXPECT_TRUE(refused(sound().raw("k", GgufType::kArray, strange), "k has the value type 77"));
  EXPECT_TRUE(refused(sound().scalar("k", GgufType::kBool, uint8_t{2}), "k is the boolean 2"));
  EXPECT_TRUE(refused(sound().u32("flag", 1), "flag stands there twice"));
}

TEST_F(GgufFiles, alignments_that_are_none_are_refused) {
  for (uint32_t alignment : {0u, 3u, 24u, 1u << 17, 1u << 30, 1u << 31})
    EXPECT_TRUE(refused(sound().u32("general.alignment", alignment),
                        fmt::format("alignment is {}; expected a power", alignment)));
  EXPECT_TRUE(refused(sound().text("general.alignment", "32"), "expected an integer"));
  GgufBuilder wide;
  wide.align(4096).tensor("a", {1}, 0, "1234").tensor("b", {1}, 0, "1234");
  EXPECT_EQ(open(wide.bytes()).find("b")->offset, 8192u);
}

TEST_F(GgufFiles, tensors_of_no_sound_shape_are_refused) {
  const uint64_t huge = uint64_t{1} << 62;
  EXPECT_TRUE(refused(sound().tensor("t", {}, 0, ""), "has 0 axes"));
  EXPECT_TRUE(refused(sound().tensor("t", {1, 1, 1, 1, 1}, 0, "1234"), "has 5 axes"));
  EXPECT_TRUE(refused(sound().tensor("t", {4, 0}, 0, ""), "an axis of 0"));
  EXPECT_TRUE(refused(sound().tensor("t", {~uint64_t{0}}, 0, ""), "an axis of 18446744073709551615"));
  EXPECT_TRUE(refused(sound().tensor("t", {huge, 4}, 0, ""), "larger than any file"));
  EXPECT_TRUE(refused(sound().tensor("t", {1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0, ""), "larger than any file"));
  EXPECT_TRUE(refused(sound().tensor("t", {huge, 64}, 2, ""), "larger than any file"));
  EXPECT_TRUE(refused(sound().tensor("t", {48, 2}, 3, ""), "rows of 48 elements; Q4_1 needs a multiple of 32"));
  EXPECT_TRUE(refused(sound().tensor("t", {320}, 12, ""), "Q4_K needs a multiple of 256"));
  for (uint32_t type : {4u, 5u, 31u, 38u, 42u, 1000u, ~0u})
    EXPECT_TRUE(refused(sound().tensor("t", {32}, type, ""), fmt::format("has the type {};", type)));
  EXPECT_TRUE(refused(sound().tensor("w", {1}, 0, "1234"), "tensor w stands there twice"));
}

TEST_F(GgufFiles, tensors_that_overlap_leave_holes_or_pass_the_end_are_refused) {
  EXPECT_TRUE(refused(sound().tensor("t", {8}, 0, std::string(32, 't')).offset(96), "tensors overlap"));
  EXPECT_TRUE(refused(sound().tensor("t", {8}, 0, std::string(32, 't')).offset(0), "tensors overlap"));
  EXPECT_TRUE(refused(sound().tensor("t", {8}, 0, std::string(32, 't')).offset(160), "a hole"));
  EXPECT_TRUE(refused(sound().tensor("t", {8}, 0, std::string(32, 't')).offset(130), "expected a multiple of 32"));
  EXPECT_TRUE(refused(sound().tensor("t", {8}, 0, std::string(32, 't')).offset(~uint64_t{31}), "a hole"));
  EXPECT_TRUE(refused(sound().tensor("t", {100}, 0, std::string(32, 't')), "cut short"));
}

TEST_F(GgufFiles, a_key_of_another_type_or_range_is_named_with_what_it_is) {
  const std::string bytes = sound().scalar("nan", GgufType::kF32, std::bit_cast<float>(0x7fc00000u)).bytes();
  const auto expect = [&](const std::string& part, const auto& then) {
    const std::string message = error(bytes, then);
    EXPECT_NE(message.find(part), message.npos) << message << " lacks " << part;
  };
  expect("llama.block_count is 3 (U32); expected a string", [](const GgufFile& f) { f.string("llama.block_count"); });
  expect("general.architecture is the string \"llama\"; expected an integer in 0..9",
         [](const GgufFile& f) { f.integer("general.architecture", 0, 9); });
  expect("llama.block_count is 3 (U32); expected an integer in 4..9",
         [](const GgufFile& f) { f.integer("llama.block_count", 4, 9); });
  expect("flag is 1 (a boolean); expected an integer", [](const GgufFile& f) { f.integer("flag", 0, 9); });
  expect("large is 1.8", [](const GgufFile& f) { f.integer("large", INT64_MIN, INT64_MAX); });
  expect("nan is nan (F32); expected a finite number", [](const GgufFile& f) { f.number("nan"); });
  expect("words is an array of 3 of type a string; expected a finite number",
         [](const GgufFile& f) { f.number("words"); });
  expect("words is an array of 3", [](const GgufFile& f) { f.integers("words"); });
  expect("numbers is an array of 3 of type I32; expected an array of strings",
         [](const GgufFile& f) { f.strings("numbers"); });
  expect("flag is 1 (a boolean); expected an array of strings", [](const GgufFile& f) { f.strings("flag"); });
  expect("flag is 1 (a boolean); expected a string", [](const GgufFile& f) { f.string("flag"); });
  expect("llama.block_count is 3 (U32); expected a boolean", [](const GgufFile& f) { f.boolean("llama.block_count"); });
  expect("none is missing; expected an integer", [](const GgufFile& f) { f.required_integer("none", 0, 1); });
}

TEST_F(GgufFiles, one_that_shrinks_after_opening_is_named) {
  const GgufFile file = open(sound().bytes());
  std::filesystem::resize_file(path_, 100);
  const auto message = [&](const auto& action) -> std::string {
    try {
      action();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message([&] { file.strings("words"); }).find("file shrank"), std::string::npos);
  std::vector<std::byte> bytes(12);
  EXPECT_NE(message([&] { file.input().read(file.tensors()[1].offset, bytes); }).find("file shrank"),
            std::string::npos);
}

#ifdef __SANITIZE_ADDRESS__
constexpr long kKeptKiB = 512 << 10;  // of freed memory, by the sanitizer
#else
constexpr long kKeptKiB = 0;
#endif

// Whatever stands there, it is read as what it says, or refused; never a crash, and no memory beyond the file's size.
TEST_F(GgufFiles, damaged_ones_never_crash) {
  const std::string whole = sound().bytes();
  std::mt19937_64 random(7);
  struct rusage before {};
  ::getrusage(RUSAGE_SELF, &before);
  int refusals = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string file = whole;
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0 && !file.empty(); --edits) {
      const size_t at = random() % file.size();
      switch (random() % 5) {
        case 0:
          file[at] = static_cast<char>(random());
          break;
        case 1:
          file.erase(at, 1 + random() % 9);
          break;
        case 2:
          file.insert(at, file.substr(random() % file.size(), random() % 20));
          break;
        case 3:
          file[at] = static_cast<char>(file[at] ^ (1 << random() % 8));
          break;
        default:
          if (at + 8 <= file.size()) {
            const uint64_t number = random() % 2 ? uint64_t{1} << random() % 64 : ~uint64_t{0} >> random() % 64;
            std::memcpy(file.data() + at, &number, 8);
          }
      }
    }
    const std::string message = error(file, [](const GgufFile& read) {
      for (const char* key : {"words", "numbers", "flag", "llama.block_count"}) {
        if (!read.has(key)) continue;
        try {
          read.strings(key);
          read.integers(key);
        } catch (const Error&) {
        }
      }
      for (const TensorInfo& tensor : read.tensors()) {
        std::vector<std::byte> bytes(tensor.bytes);
        read.input().read(tensor.offset, bytes);
      }
    });
    ASSERT_EQ(message.find("wrong kind"), message.npos) << message;
    refusals += !message.empty();
  }
  struct rusage after {};
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_GT(refusals, 8000);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, (20 << 10) + kKeptKiB);
}

}  // namespace
}  // namespace coprime
