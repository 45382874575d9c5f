// Files that are broken, or made to break their reader: what a person is told of each. One table a kind of file; the
// message is what stands behind the file's path. Units test more of each: checkpoint/safetensors_test.cpp,
// checkpoint/checkpoint_test.cpp, gguf/gguf_file_test.cpp, geometry/refusals_test.cpp, tokenizer/tokenizer_test.cpp.
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/test_checkpoints.h"
#include "gguf/test_files.h"
#include "sim/chip_file.h"
#include "tokenizer/tokenizer.h"
#include "worlds.h"

namespace coprime {
namespace {

struct Told {
  std::string what;     // the test's name for the input
  std::string message;  // behind the path; a part of it
};

// The message of the Error that `read` throws, without `path` in front.
template <class Read>
void expect_told(const Told& told, ErrorKind kind, const std::filesystem::path& path, const Read& read) {
  try {
    read();
    ADD_FAILURE() << told.what << ": accepted";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.kind(), kind) << told.what << ": " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << told.what << ": " << text;
    EXPECT_TRUE(text.starts_with(path.string())) << told.what << ": " << text;
    EXPECT_NE(text.find(told.message), std::string::npos) << told.what << ": " << text;
  }
}

std::string with_length(uint64_t length, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + rest;
}
std::string file_of(const std::string& header, size_t data) {
  return with_length(header.size(), header + std::string(data, '\0'));
}
std::string one(const std::string& shape, const std::string& offsets, const std::string& type = "F32") {
  return R"({"x":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
}

TEST(HostileFiles, safetensors) {
  std::string deep = "{}";
  for (int i = 0; i < 10000; ++i) deep = "{\"x\":" + deep + "}";
  const auto two = [](const std::string& second) {
    return R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)" + second + "}";
  };
  const std::pair<std::string, Told> kCases[] = {
      {"", {"an empty file", "0 bytes; too short for a safetensors file"}},
      {with_length(0, "12345678"), {"a header of no bytes", "its header does not start with '{'"}},
      {with_length(uint64_t{1} << 63, "{}"),
       {"a header of 2^63 bytes", "a header of 9223372036854775808 bytes in a file of 10"}},
      {with_length(~uint64_t{0}, "{}"), {"a header of 2^64-1 bytes", "a header of 18446744073709551615 bytes"}},
      {with_length(3, "{}"), {"a header past the end", "a header of 3 bytes in a file of 10; expected at most 2"}},
      {file_of("{x}", 0), {"a header that is not JSON", "3 bytes that are not JSON"}},
      {file_of(deep, 0), {"a header of 10,000 levels", "not JSON of at most 32 levels"}},
      {file_of(two(R"("x":{"dtype":"U8","shape":[4],"data_offsets":[4,8]})"), 8),
       {"one name twice", "key \"x\" stands twice in one object; the file is damaged or forged: fetch it again"}},
      {file_of(one("[1]", "[4,0]"), 4),
       {"begin behind end", "tensor x lies at [4, 0) of 4 bytes of data; is the file cut short?"}},
      {file_of(one("[1]", "[-4,0]"), 4),
       {"a negative offset", "data_offsets of tensor x holds -4; expected whole numbers from 0"}},
      {file_of(one("[-1]", "[0,4]"), 4),
       {"a negative size", "shape of tensor x holds -1; expected whole numbers from 0"}},
      {file_of(two(R"("y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]})"), 6),
       {"an overlap", "tensor y starts at byte 2 of the data; expected 4 (tensors overlap)"}},
      {file_of(two(R"("y":{"dtype":"U8","shape":[4],"data_offsets":[6,10]})"), 10),
       {"a gap", "tensor y starts at byte 6 of the data; expected 4 (a hole)"}},
      {file_of(one("[2]", "[0,8]"), 4),
       {"an end past the file's", "tensor x lies at [0, 8) of 4 bytes of data; is the file cut short?"}},
      {file_of(one("[1]", "[0,4]"), 8),
       {"bytes that belong to no tensor", "the tensors have 4 bytes; the file holds 8"}},
      {file_of(one("[4294967296,4294967296]", "[0,0]"), 0),
       {"a product that wraps", "tensor x of shape [4294967296, 4294967296] is larger than any file"}},
      {file_of(one("[2]", "[0,4]"), 4),
       {"bytes unlike shape times type", "tensor x has 4 bytes; F32 of shape [2] needs 8"}},
      {file_of(one("[1]", "[0,4]", "F33"), 4),
       {"an unknown type", "tensor x has the dtype F33; no such type is known"}},
  };
  const TemporaryFolder folder;
  const auto path = folder / "model.safetensors";
  for (const auto& [bytes, told] : kCases) {
    write_bytes(path, bytes);
    expect_told(told, ErrorKind::kModel, path, [&] { SafetensorsFile::open(path); });
  }
  write_sparse(path, "{}" + std::string(100'000'001, ' '), 0);
  expect_told({"a header of more than 100 MB", "expected at most 100000000"}, ErrorKind::kModel, path,
              [&] { SafetensorsFile::open(path); });
}

TEST(HostileFiles, shards_and_their_index) {
  const TemporaryFolder folder;
  const auto index = folder / "model.safetensors.index.json";
  for (const char* name : {"a", "b"}) {
    TensorMap tensors;
    tensors[name] = {DType::kF32, {1}, std::vector<std::byte>(4)};
    write_tensors(folder / (std::string(name) + ".safetensors"), tensors);
  }
  const auto open = [&](const std::string& map) {
    write_bytes(index, R"({"weight_map":{)" + map + "}}");
    return Checkpoint::open(folder.path());
  };
  const std::pair<std::string, Told> kCases[] = {
      {R"("a":"../a.safetensors")",
       {"a path out of the folder",
        "weight_map.a is \"../a.safetensors\"; expected the name of a file beside the index"}},
      {R"("a":"a.safetenso\rs")", {"a name with a control character", "expected the name of a file beside the index"}},
      {R"("a":"/a.safetensors")", {"an absolute path", "expected the name of a file beside the index"}},
      {R"("a":7)", {"no name at all", "weight_map.a is 7"}},
      {R"("a":"c.safetensors")",
       {"a missing shard", "c.safetensors: No such file or directory: check the path, or fetch the file"}},
      {R"("a":"a.safetensors","b":"a.safetensors")",
       {"a tensor that is not where the index says",
        "a.safetensors: tensor b is missing; the index says that it is here; fetch the file again"}},
  };
  for (const auto& [map, told] : kCases) expect_told(told, ErrorKind::kModel, folder.path(), [&] { open(map); });
  // A shard that the index does not name is not read.
  write_bytes(folder / "extra.safetensors", "no tensors");
  EXPECT_EQ(open(R"("a":"a.safetensors","b":"b.safetensors")").tensors().size(), 2u);
}

GgufBuilder sound() {
  GgufBuilder file;
  file.text("general.architecture", "llama").u32("llama.block_count", 1).u32("llama.vocab_size", 4);
  return file.texts("tokenizer.ggml.tokens", {"a", "b", "c"}).tensor("w", {64, 2}, 3, std::string(80, 'q'));
}

std::string claimed(uint64_t tensors, uint64_t keys) {
  std::string file = sound().bytes();
  std::memcpy(file.data() + 8, &tensors, 8);
  std::memcpy(file.data() + 16, &keys, 8);
  return file;
}

std::string text_of_length(uint64_t length) {
  std::string text;
  GgufBuilder::put(&text, length);
  return sound().raw("k", GgufType::kString, text + "abc").bytes();
}

std::string array_of(uint32_t type, uint64_t count) {
  std::string array;
  GgufBuilder::put(&array, type);
  GgufBuilder::put(&array, count);
  return sound().raw("k", GgufType::kArray, array).bytes();
}

TEST(HostileFiles, gguf) {
  constexpr uint64_t kHuge = uint64_t{1} << 62;
  const std::pair<std::string, Told> kCases[] = {
      {"GGUG" + sound().bytes().substr(4),
       {"another magic", "does not begin with \"GGUF\"; expected a GGUF file, or a folder of safetensors"}},
      {sound().bytes(1), {"version 1", "GGUF version 1; supported: 2 and 3"}},
      {claimed(kHuge, 4), {"2^62 tensors", "claims 4611686018427387904 tensors in the"}},
      {claimed(1, kHuge), {"2^62 keys", "claims 4611686018427387904 keys in the"}},
      {text_of_length(kHuge), {"a string of 2^62 bytes", "a string claims 4611686018427387904 bytes"}},
      {array_of(4, kHuge), {"an array of 2^62 elements", "k claims 4611686018427387904 elements"}},
      {array_of(9, 1), {"an array of arrays", "k is an array of arrays, which no known key is"}},
      {array_of(77, 1), {"an unknown type of value", "k has the value type 77; expected 0 to 12"}},
      {sound().tensor("t", {1, 1, 1, 1, 1}, 0, "1234").bytes(), {"five axes", "tensor t has 5 axes; expected 1 to 4"}},
      {sound().tensor("t", {4, 0}, 0, "").bytes(),
       {"an axis of nothing", "tensor t has an axis of 0 elements; expected at least one"}},
      {sound().tensor("t", {1 << 16, 1 << 16, 1 << 16, 1 << 16}, 0, "").bytes(),
       {"a product that wraps", "tensor t of shape [65536, 65536, 65536, 65536] is larger than any file"}},
      {sound().u32("general.alignment", 0).bytes(), {"an alignment of 0", "general.alignment is 0; expected a power"}},
      {sound().u32("general.alignment", 24).bytes(),
       {"an alignment of 24", "general.alignment is 24; expected a power"}},
      {sound().u32("general.alignment", 1 << 30).bytes(),
       {"an alignment of 2^30", "general.alignment is 1073741824; expected a power"}},
      {sound().text("general.alignment", "32").bytes(),
       {"a number as text", "general.alignment is the string \"32\"; expected an integer"}},
      {sound().tensor("t", {32}, ~0u, "").bytes(),
       {"a type out of range", "tensor t has the type 4294967295; no such type is known"}},
      {sound().tensor("t", {8}, 0, std::string(32, 't')).offset(96 - 32).bytes(), {"an overlap", "tensors overlap"}},
      {sound().tensor("t", {100}, 0, "1234").bytes(), {"an end past the file's", "is the file cut short?"}},
  };
  const MemoryFile file;
  for (const auto& [bytes, told] : kCases) {
    write_bytes(file.path(), bytes);
    expect_told(told, ErrorKind::kModel, file.path(), [&] { GgufFile::open(file.path()); });
  }
  const std::string whole = sound().bytes();  // the last tensor's 16 bytes of padding may be missing
  for (size_t size = 0; size < whole.size() - 16; ++size) {
    write_bytes(file.path(), whole.substr(0, size));
    expect_told({fmt::format("cut to {} bytes", size), ""}, ErrorKind::kModel, file.path(),
                [&] { GgufFile::open(file.path()); });
  }
}

TEST(HostileFiles, a_vocabulary_unlike_the_tensors_rows) {
  const MemoryFile file;
  GgufBuilder builder;
  builder.text("general.architecture", "llama").u32("llama.block_count", 1).u32("llama.context_length", 64);
  builder.u32("llama.embedding_length", 32).u32("llama.feed_forward_length", 32).u32("llama.attention.head_count", 4);
  builder.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f).texts("tokenizer.ggml.tokens", {"a", "b", "c"});
  builder.tensor("token_embd.weight", {32, 4}, 0, std::string(512, 'e'));
  builder.write(file.path());
  const auto check = [&] {
    check_checkpoint(Checkpoint::open(file.path()), ShardPlan(read_model_shape(file.path()), {}));
  };
  expect_told({"four rows for three tokens",
               "tensor token_embd.weight has the shape [4, 32]; the file's metadata makes it [3, 32]"},
              ErrorKind::kModel, file.path(), check);
  builder.u32("llama.vocab_size", 4).write(file.path());
  expect_told({"a stated size unlike the tokens", "llama.vocab_size is 4"}, ErrorKind::kModel, file.path(), check);
}

// Of text, not of files: bytes that are no UTF-8 are refused where they stand, anything else takes linear time.
TEST(HostileFiles, texts_for_the_tokenizer) {
  const Tokenizer tokenizer = Tokenizer::open(golden_directory("mini-qwen35"));
  const std::pair<std::string, Told> kCases[] = {
      {"ab\xff", {"a byte that is none of UTF-8", "byte 2 is 0xff"}},
      {"\xc0\x80", {"an overlong form", "byte 0 is 0xc0"}},
      {"\xed\xa0\x80", {"a surrogate", "byte 0 is 0xed"}},
      {"abc\xe4\xbd", {"a character cut short", "byte 3 is 0xe4"}},
  };
  for (const auto& [text, told] : kCases)
    expect_told(told, ErrorKind::kUsage, "the text is not UTF-8", [&] { tokenizer.encode(text, false); });

  std::string marks = "a", words;
  for (int i = 0; i < 20'000; ++i) marks += i % 2 == 0 ? "\u0323" : "\u0301";
  for (int i = 0; i < 1'000'000; ++i) words += static_cast<char>('a' + i * 7 % 26);
  for (const std::string& text : {words, marks, std::string(1 << 20, ' '), std::string(1 << 20, '\n')}) {
    const auto begin = std::chrono::steady_clock::now();
    std::string joined;
    for (const int32_t id : tokenizer.encode(text, false)) joined += tokenizer.bytes(id);
    EXPECT_GE(joined.size(), text.size() / 2);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
  }
}

TEST(HostileFiles, vocabularies) {
  const auto with = [](const std::string& vocab, const std::string& merges) {
    return R"({"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":false},"decoder":{"type":"ByteLevel"},
      "model":{"vocab":{)" +
           vocab + R"(},"merges":[)" + merges + "]}}";
  };
  const std::pair<std::string, Told> kCases[] = {
      {with(R"("a":0,"b":1)", R"("a b")"),
       {"a merge into no token", "model.merges[0]: \"ab\" is no token of the vocabulary"}},
      {with(R"("a":0,"ab":1)", R"("a b")"),
       {"a merge of no token", "model.merges[0]: \"b\" is no token of the vocabulary"}},
      {with(R"("a":0,"b":0)", ""), {"two tokens of one id", "the id 0 belongs to two tokens, \"a\" and \"b\""}},
      {with(R"("a":-1)", ""), {"a negative id", "model.vocab.\"a\" is -1; expected a token id from 0 to 16777215"}},
      {with(R"("a":2147483648)", ""), {"an id beyond all", "model.vocab.\"a\" is 2147483648; expected a token id"}},
      {with(R"("a":0,"a":1)", ""), {"one token twice", "key \"a\" stands twice in one object"}},
  };
  for (const auto& [json, told] : kCases)
    expect_told(told, ErrorKind::kModel, "tokenizer.json", [&] { Tokenizer::parse(json, "tokenizer.json"); });
}

TEST(HostileFiles, chips) {
  std::string deep, wide = "a: {b: 1";
  for (int i = 0; i < 10000; ++i) deep += "{a: ";
  while (wide.size() < 70000) wide += ", " + std::to_string(wide.size()) + ": 1";
  const std::pair<std::string, Told> kCases[] = {
      {"", {"an empty file", ":1: expected a map; found nothing"}},
      {"just text", {"text alone", ":1: expected a map; found just text"}},
      {"a: {b: 1", {"a map without an end", ": not YAML: "}},
      {std::string("a: \0\xff\xfe", 6), {"bytes that are no text", ": "}},
      {"a: &x {b: *x}", {"an anchor", ":1: key a: expected a value without an anchor; found an anchor"}},
      {"a: *x", {"an alias of nothing", ": not YAML: "}},
      {"a: !!python/object:os.system x", {"a tag", ":1: key a: expected a value without a tag; found tag "}},
      {"name: x\npe: [1, 2]", {"a sequence", ":2: key pe: expected a map or a value; found a sequence"}},
      {"name: x\n? {a: 1}\n: 2", {"a map as key", ":2: expected a name as key; found a map"}},
      {"name:", {"a key of nothing", ":1: key name: expected a value; found nothing"}},
      {"name: x\n---\nname: y", {"two documents", ":1: expected one document; found several"}},
      {deep, {"10,000 levels", ":1: "}},
      {wide, {"70,000 bytes", ":1: expected at most 65536 bytes; found "}},
  };
  const TemporaryFolder folder;
  const auto path = folder / "chip.yaml";
  for (const auto& [bytes, told] : kCases) {
    write_bytes(path, bytes);
    expect_told(told, ErrorKind::kModel, path, [&] { sim::read_chip(path); });
  }
}

}  // namespace
}  // namespace coprime
