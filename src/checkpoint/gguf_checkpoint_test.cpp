// Checkpoints in GGUF: matched with the same rules, and a rank's rows and whole blocks as the file has them.
#include <gtest/gtest.h>

#include "checkpoint/checkpoint.h"
#include "checkpoint/test_checkpoints.h"
#include "geometry/test_shapes.h"
#include "gguf/test_files.h"

namespace coprime {
namespace {

using testing::AssertionFailure;
using testing::AssertionResult;
using testing::AssertionSuccess;

constexpr uint32_t kF32 = 0, kQ8_0 = 8;

ModelShape gguf_shape() {
  ModelShape shape = hybrid_shape({6, 2, 16, 160, 100, 64, 4}, {2, 4, 16, 24, 4});
  shape.container = Container::kGguf;
  shape.architecture_name = "qwen35";
  shape.tensor_prefix.clear();
  shape.mlp_unit = 32;
  shape.norm_plus_one = false;
  shape.mtp_layers = 1;
  return shape;
}

struct FileTensor {
  std::vector<uint64_t> dims;
  uint32_t type = kF32;
  std::string bytes;
};
using FileTensors = std::map<std::string, FileTensor>;

int64_t bytes_of(const FileTensor& tensor) {
  int64_t elements = 1;
  for (uint64_t dim : tensor.dims) elements *= static_cast<int64_t>(dim);
  return tensor.type == kQ8_0 ? elements / 32 * 34 : elements * 4;
}

// Every tensor that the shape's rules predict: matrices in Q8_0 where they can be, random bytes.
FileTensors random_file(const ModelShape& shape) {
  std::mt19937 random(4);
  FileTensors tensors;
  const ShardPlan plan(shape, {});
  for (const Rule& rule : plan.rules()) {
    for (int layer = -1; layer < shape.layers; ++layer) {
      if (!plan.applies(rule, layer)) continue;
      FileTensor tensor;
      tensor.dims.assign(rule.shape.rbegin(), rule.shape.rend());
      if (tensor.dims.size() > 1 && tensor.dims[0] % 32 == 0) tensor.type = kQ8_0;
      tensor.bytes.resize(static_cast<size_t>(bytes_of(tensor)));
      for (char& byte : tensor.bytes) byte = static_cast<char>(random());
      for (size_t at = 1; tensor.type == kQ8_0 && at < tensor.bytes.size(); at += 34) tensor.bytes[at] &= 0x3f;
      tensors[plan.tensor_name(rule, layer)] = std::move(tensor);
    }
  }
  return tensors;
}

class GgufCheckpoint : public testing::Test {
 protected:
  Checkpoint open() {
    GgufBuilder file;
    for (const auto& [name, tensor] : tensors_) file.tensor(name, tensor.dims, tensor.type, tensor.bytes);
    file.write(path_);
    return Checkpoint::open(path_);
  }
  AssertionResult refused(std::initializer_list<std::string> parts) {
    const std::string message = model_error([&] { check_checkpoint(open(), ShardPlan(shape_, {.ranks = 3})); });
    for (const std::string& part : parts) {
      if (message.find(part) == message.npos) return AssertionFailure() << '"' << message << "\" lacks " << part;
    }
    return AssertionSuccess();
  }

  ModelShape shape_ = gguf_shape();
  FileTensors tensors_ = random_file(shape_);
  TemporaryFolder folder_;
  std::filesystem::path path_ = folder_ / "model.gguf";
};

TEST_F(GgufCheckpoint, a_sound_one_passes_at_every_rank_count_and_says_what_is_unused) {
  tensors_["rope_freqs.weight"] = {{8}, kF32, std::string(32, 'r')};
  tensors_["blk.4.nextn.eh_proj.weight"] = {{1}, kF32, "1234"};
  tensors_["blk.4.attn_norm.weight"] = {{1}, kF32, "1234"};
  const Checkpoint checkpoint = open();
  for (int ranks = 1; ranks <= 16; ++ranks) {
    const ShardPlan plan(shape_, {.ranks = ranks});
    const Tally tally = check_checkpoint(checkpoint, plan);
    for (const Tally::Line& line : tally.lines) EXPECT_EQ(line.found, line.rule->expected) << line.name;
    EXPECT_NE(tally.text().find("unused: MTP 2x rotary tables 1x"), std::string::npos) << tally.text();
    EXPECT_NE(tally.text().find("attn_qkv 3x [160"), std::string::npos) << tally.text();
  }
}

TEST_F(GgufCheckpoint, tensors_that_do_not_fit_are_named) {
  const FileTensors sound = tensors_;
  tensors_["token_embd.weight"].dims[1] = 96;
  tensors_["token_embd.weight"].bytes.resize(96 * 2 * 34);
  EXPECT_TRUE(refused({"token_embd.weight has the shape [96, 64]", "the file's metadata makes it [100, 64]"}));
  tensors_ = sound;
  tensors_.erase("blk.1.ssm_dt.bias");
  EXPECT_TRUE(
      refused({"rule ssm_dt.bias: found 2 tensors, the file's metadata predicts 3", "blk.1.ssm_dt.bias is missing"}));
  tensors_ = sound;
  for (const char* name :
       {"blk.5.attn_norm.weight", "blk.4x.attn_norm.weight", "blk.", "blk.-1.w", "model.norm.weight"}) {
    tensors_[name] = {{1}, kF32, "1234"};
    EXPECT_TRUE(refused({std::string("tensor ") + name + " has no place in a qwen35 of 4 layers"})) << name;
    tensors_.erase(name);
  }
  constexpr uint32_t kI8 = 24;
  tensors_["blk.0.ffn_down.weight"] = {{160, 64}, kI8, std::string(160 * 64, '\0')};
  EXPECT_TRUE(refused({"blk.0.ffn_down.weight is I8, which is not supported", "Q2_K to Q6_K, MXFP4"}));
  tensors_ = sound;
  tensors_["output_norm.weight"] = {{64}, kQ8_0, std::string(68, '\0')};
  EXPECT_TRUE(refused({"output_norm.weight is Q8_0, which is not supported; supported: BF16, F16, F32"}));
}

struct Loaded {
  LocalTensor tensor;
  std::vector<std::byte> bytes;
};

class KeepingSink final : public WeightSink {
 public:
  explicit KeepingSink(Loaded* loaded) : loaded_(loaded) {}
  void rows(int64_t, int64_t, std::span<const std::byte> bytes) override {
    loaded_->bytes.insert(loaded_->bytes.end(), bytes.begin(), bytes.end());
  }

 private:
  Loaded* loaded_;
};

std::map<std::string, Loaded> load(const Checkpoint& checkpoint, const ShardPlan& plan, int rank,
                                   Tally* tally = nullptr) {
  std::map<std::string, Loaded> shard;
  const Tally result = load_shard(checkpoint, plan, rank, [&](const LocalTensor& tensor) {
    Loaded& loaded = shard[tensor.name];
    loaded.tensor = tensor;
    return std::make_unique<KeepingSink>(&loaded);
  });
  if (tally != nullptr) *tally = result;
  return shard;
}

std::string_view text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST_F(GgufCheckpoint, rows_come_in_the_models_order) {
  const Checkpoint checkpoint = open();
  const ShardPlan plan(shape_, {.ranks = 2});
  const auto shard = load(checkpoint, plan, 1);
  // Key head 1 with value heads 2 and 3, which the file has at 1 and 3.
  const std::string& decay = tensors_.at("blk.0.ssm_a").bytes;
  EXPECT_EQ(text_of(shard.at("blk.0.ssm_a").bytes), decay.substr(4, 4) + decay.substr(12, 4));
  const std::string& qkv = tensors_.at("blk.0.attn_qkv.weight").bytes;
  const size_t row = 2 * 34;  // 64 columns
  const auto rows = [&](size_t first, size_t count) { return qkv.substr(first * row, count * row); };
  EXPECT_EQ(text_of(shard.at("blk.0.attn_qkv.weight").bytes),
            rows(16, 16) + rows(32 + 16, 16) + rows(64 + 24, 24) + rows(64 + 72, 24));
}

TEST_F(GgufCheckpoint, a_column_cut_holds_whole_blocks_and_says_where_x_stands_in_them) {
  const Checkpoint checkpoint = open();
  const ShardPlan plan(shape_, {.ranks = 2});
  const auto shard = load(checkpoint, plan, 1);
  // attn_output: heads 3 to 5 of 16: columns 48..95 of 96; blocks 1 and 2 of three.
  const Loaded& o = shard.at("blk.3.attn_output.weight");
  ASSERT_TRUE(o.tensor.inputs);
  EXPECT_EQ(o.tensor.columns.extent, 64);
  EXPECT_EQ(o.tensor.inputs->columns, 48);
  EXPECT_EQ(o.tensor.inputs->runs, (std::vector<ColumnRun>{{0, 16, 48}}));
  const std::string& bytes = tensors_.at("blk.3.attn_output.weight").bytes;
  ASSERT_EQ(o.bytes.size(), 64u * 2 * 34);
  for (size_t r = 0; r < 64; ++r) EXPECT_EQ(text_of(o.bytes).substr(r * 68, 68), bytes.substr(r * 102 + 34, 68)) << r;
  // ssm_out: the file's heads 1 and 3 of 24: columns 24..47 and 72..95 of 96: all three blocks.
  const Loaded& out = shard.at("blk.0.ssm_out.weight");
  ASSERT_TRUE(out.tensor.inputs);
  EXPECT_EQ(text_of(out.bytes), tensors_.at("blk.0.ssm_out.weight").bytes);
  EXPECT_EQ(out.tensor.inputs->runs, (std::vector<ColumnRun>{{0, 24, 24}, {24, 72, 24}}));
  // ffn_down: cut in units of 32: nothing is held twice.
  EXPECT_FALSE(shard.at("blk.0.ffn_down.weight").tensor.inputs);
}

TEST_F(GgufCheckpoint, a_rank_reads_its_own_blocks_and_no_others) {
  const Checkpoint checkpoint = open();
  uint64_t whole = 0;
  for (const auto& [name, tensor] : tensors_) whole += static_cast<uint64_t>(bytes_of(tensor));
  for (bool exact : {false, true}) {
    for (int ranks : {1, 2, 3}) {
      const ShardPlan plan(shape_, {.ranks = ranks, .exact = exact});
      for (int rank = 0; rank < ranks; ++rank) {
        Tally tally;
        uint64_t held = 0;
        for (const auto& [name, loaded] : load(checkpoint, plan, rank, &tally)) {
          held += loaded.bytes.size();
          EXPECT_EQ(loaded.bytes.empty(), loaded.tensor.rows.extent * loaded.tensor.columns.extent == 0);
        }
        EXPECT_EQ(tally.bytes_read, held);
        EXPECT_TRUE(ranks > 1 || held == whole);
      }
    }
  }
}

TEST_F(GgufCheckpoint, a_scale_that_is_no_number_is_refused_with_its_tensor_and_row) {
  tensors_.at("blk.1.ffn_gate.weight").bytes[(5 * 2 + 1) * 34 + 1] = '\x7e';
  const Checkpoint checkpoint = open();
  const std::string message = model_error([&] { load(checkpoint, ShardPlan(shape_, {}), 0); });
  EXPECT_NE(message.find("tensor blk.1.ffn_gate.weight has a block whose scale is infinite or NaN (row 5"),
            std::string::npos)
      << message;
}

TEST_F(GgufCheckpoint, a_file_that_shrinks_while_it_is_read_is_named) {
  const Checkpoint checkpoint = open();
  int tensors = 0;
  Loaded kept;
  const std::string message = model_error([&] {
    load_shard(checkpoint, ShardPlan(shape_, {}), 0, [&](const LocalTensor&) -> std::unique_ptr<WeightSink> {
      if (++tensors == 5) std::filesystem::resize_file(path_, 10);
      return std::make_unique<KeepingSink>(&kept);
    });
  });
  EXPECT_NE(message.find("file shrank"), std::string::npos) << message;
  EXPECT_EQ(tensors, 5);
}

}  // namespace
}  // namespace coprime
