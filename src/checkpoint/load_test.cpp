// The bytes that reach the sinks, against slices of whole tensors.
#include <gtest/gtest.h>

#include <fstream>

#include "checkpoint/checkpoint.h"
#include "checkpoint/test_checkpoints.h"
#include "geometry/test_shapes.h"

namespace coprime {
namespace {

struct Loaded {
  LocalTensor tensor;
  std::vector<std::byte> bytes;
  int64_t rows = 0;
};
using Shard = std::map<std::string, Loaded>;

// Keeps the rows, and holds the reader to the sink's contract.
class KeepingSink : public WeightSink {
 public:
  explicit KeepingSink(Loaded* loaded) : loaded_(loaded) {}
  void rows(int64_t first, int64_t count, std::span<const std::byte> bytes) override {
    EXPECT_EQ(first, loaded_->rows);
    EXPECT_GT(count, 0);
    EXPECT_EQ(static_cast<int64_t>(bytes.size()),
              count * loaded_->tensor.columns.extent * dtype_bytes(loaded_->tensor.type));
    loaded_->rows += count;
    loaded_->bytes.insert(loaded_->bytes.end(), bytes.begin(), bytes.end());
  }

 private:
  Loaded* loaded_;
};

Shard load(const Checkpoint& checkpoint, const ShardPlan& plan, int rank, Tally* tally = nullptr) {
  Shard shard;
  const Tally result = load_shard(checkpoint, plan, rank, [&](const LocalTensor& tensor) {
    Loaded& loaded = shard[tensor.name];
    loaded.tensor = tensor;
    return std::make_unique<KeepingSink>(&loaded);
  });
  if (tally != nullptr) *tally = result;
  return shard;
}

// Element by element: zero, unless both its row and its column are real.
std::vector<std::byte> slice(const NamedTensor& whole, const AxisMap& rows, const AxisMap& columns) {
  const int64_t size = dtype_bytes(whole.type), width = count_of(whole.shape) / whole.shape[0];
  std::vector<std::byte> out(static_cast<size_t>(rows.extent * columns.extent * size));
  for (const Span& r : rows.real) {
    for (int64_t i = 0; i < r.count; ++i) {
      for (const Span& c : columns.real) {
        for (int64_t j = 0; j < c.count; ++j) {
          std::memcpy(out.data() + ((r.local + i) * columns.extent + c.local + j) * size,
                      whole.bytes.data() + ((r.global + i) * width + c.global + j) * size, static_cast<size_t>(size));
        }
      }
    }
  }
  return out;
}

ModelShape test_shape(int which) {
  ModelShape shape;
  switch (which) {
    case 0:
      shape = hybrid_shape({6, 2, 8, 50, 331, 40, 5}, {2, 6, 6, 10, 4});
      break;
    case 1:
      shape = dense_shape({9, 3, 8, 48, 130, 72, 2});
      break;
    case 2:
      shape = dense_shape({8, 1, 8, 80, 200, 64, 2});
      break;  // KV heads are copied at 2, 4 and 8 ranks
    default:
      shape = hybrid_shape({10, 5, 8, 33, 64, 24, 4}, {5, 5, 4, 4, 3});
      break;
  }
  shape.qkv_bias = which % 2 == 1;
  return shape;
}

TEST(LoadShard, sinks_receive_exactly_the_slices_that_the_plan_names) {
  for (int which = 0; which < 4; ++which) {
    const ModelShape shape = test_shape(which);
    const TemporaryFolder folder;
    const TensorMap whole = random_tensors(shape, static_cast<unsigned>(which));
    write_tensors(folder / "model.safetensors", whole);
    const Checkpoint checkpoint = Checkpoint::open(folder.path());
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (int variant = 0; variant < 8; ++variant) {
        const ShardPlan plan(shape, {.ranks = ranks,
                                     .pad_for = variant & 1 ? 3 : 0,
                                     .exact = (variant & 2) != 0,
                                     .dummies = variant & 4 ? Dummies::kHeld : Dummies::kSkipped});
        for (int rank = 0; rank < ranks; ++rank) {
          Tally tally;
          const Shard shard = load(checkpoint, plan, rank, &tally);
          ASSERT_EQ(shard.size(), whole.size());
          uint64_t real_bytes = 0;
          for (const auto& [name, loaded] : shard) {
            const LocalTensor& local = loaded.tensor;
            ASSERT_EQ(loaded.bytes, slice(whole.at(name), local.rows, local.columns))
                << name << " rank " << rank << '/' << ranks;
            ASSERT_EQ(loaded.rows, local.rows.extent);
            real_bytes +=
                static_cast<uint64_t>(local.rows.real_count() * local.columns.real_count() * dtype_bytes(local.type));
          }
          ASSERT_EQ(tally.bytes_read, real_bytes);  // its own part and nothing else
        }
      }
    }
  }
}

// An embedding of several blocks a rank.
TEST(LoadShard, tensors_larger_than_the_block_come_out_whole) {
  ModelShape shape = dense_shape({2, 2, 8, 40000, 200000, 72, 1});
  shape.tied_head = true;
  const TemporaryFolder folder;
  const TensorMap whole = random_tensors(shape, 4);
  write_tensors(folder / "model.safetensors", whole);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  for (int ranks : {1, 2}) {
    const ShardPlan plan(shape, {.ranks = ranks, .pad_for = 3, .dummies = Dummies::kHeld});
    for (int rank = 0; rank < ranks; ++rank) {
      for (const auto& [name, loaded] : load(checkpoint, plan, rank)) {
        EXPECT_TRUE(loaded.bytes == slice(whole.at(name), loaded.tensor.rows, loaded.tensor.columns))
            << name << " rank " << rank;
      }
    }
  }
}

// Without the plan's maps: the shards of all ranks, put behind one another, are the tensor.
TEST(LoadShard, the_ranks_shards_put_together_are_the_checkpoint) {
  const ModelShape shape = test_shape(0);
  const TemporaryFolder folder;
  const TensorMap whole = random_tensors(shape, 9);
  write_tensors(folder / "model.safetensors", whole);
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  for (int ranks : {1, 2, 3, 5, 8}) {
    const ShardPlan plan(shape, {.ranks = ranks});
    std::vector<Shard> shards;
    for (int rank = 0; rank < ranks; ++rank) shards.push_back(load(checkpoint, plan, rank));
    for (const auto& [name, tensor] : whole) {
      const Operation op = shards[0].at(name).tensor.rule->op;
      if (op == Operation::kSections) continue;
      std::vector<std::byte> joined;
      const int64_t pieces = op == Operation::kColumns ? tensor.shape[0] : 1;  // rows, or the whole
      for (int64_t piece = 0; piece < pieces; ++piece) {
        for (const Shard& shard : shards) {
          const std::vector<std::byte>& bytes = shard.at(name).bytes;
          const auto size = static_cast<int64_t>(bytes.size()) / pieces;
          joined.insert(joined.end(), bytes.begin() + piece * size, bytes.begin() + (piece + 1) * size);
          if (op == Operation::kReplicate) break;
        }
      }
      EXPECT_EQ(joined, tensor.bytes) << name << " of " << ranks;
    }
  }
}

// q, k and v of two key heads each at two ranks: key heads of 6 elements, value heads (three a key head) of 10.
TEST(LoadShard, sections_come_out_as_this_ranks_queries_keys_and_values) {
  const ModelShape shape = hybrid_shape({6, 2, 8, 50, 331, 40, 4}, {4, 12, 6, 10, 4});
  const TemporaryFolder folder;
  const TensorMap whole = random_tensors(shape, 5);
  write_tensors(folder / "model.safetensors", whole);
  const std::string name = "model.language_model.layers.1.linear_attn.in_proj_qkv.weight";
  const ShardPlan plan(shape, {.ranks = 2});
  const Shard shard = load(Checkpoint::open(folder.path()), plan, 1);
  const NamedTensor& tensor = whole.at(name);
  const int64_t row = 40 * dtype_bytes(tensor.type);
  std::vector<std::byte> expected;
  for (const auto& [first, count] : {std::pair(12, 12), std::pair(24 + 12, 12), std::pair(48 + 60, 60)}) {
    expected.insert(expected.end(), tensor.bytes.begin() + first * row, tensor.bytes.begin() + (first + count) * row);
  }
  EXPECT_EQ(shard.at(name).bytes, expected);
}

TEST(LoadShard, the_embedded_model_loads_from_a_copy_in_shards_as_from_one_file) {
  const std::filesystem::path source = std::filesystem::path(COPRIME_SOURCE_DIR) / "models/mini-qwen35";
  const ShardPlan plan(read_model_shape(source), {.ranks = 3});
  const Checkpoint one = Checkpoint::open(source);
  const TemporaryFolder folder;
  TensorMap files[2];
  nlohmann::json index;
  for (const Checkpoint::Located& at : one.tensors()) {
    NamedTensor tensor{at.tensor->type, at.tensor->shape, std::vector<std::byte>(at.tensor->bytes)};
    at.file->read(at.tensor->offset, tensor.bytes);
    const size_t file = std::hash<std::string>()(at.tensor->name) % 2;
    index["weight_map"][at.tensor->name] = fmt::format("model-{}.safetensors", file);
    files[file][at.tensor->name] = std::move(tensor);
  }
  for (size_t i = 0; i < 2; ++i) write_tensors(folder / fmt::format("model-{}.safetensors", i), files[i]);
  write_bytes(folder / "model.safetensors.index.json", index.dump());
  const Shard expected = load(one, plan, 1), found = load(Checkpoint::open(folder.path()), plan, 1);
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [name, loaded] : expected) EXPECT_EQ(found.at(name).bytes, loaded.bytes) << name;
}

TEST(LoadShard, a_file_that_shrinks_between_opening_and_loading_is_named) {
  const ModelShape shape = test_shape(0);
  const TemporaryFolder folder;
  write_tensors(folder / "model.safetensors", random_tensors(shape, 3));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  const uint64_t size = std::filesystem::file_size(folder / "model.safetensors");
  const ShardPlan plan(shape, {});
  for (const uint64_t smaller : {size - 1, size / 2, uint64_t{100}, uint64_t{0}}) {
    std::filesystem::resize_file(folder / "model.safetensors", smaller);
    const std::string message = model_error([&] { load(checkpoint, plan, 0); });
    EXPECT_NE(message.find("model.safetensors: file shrank: expected"), std::string::npos) << message;
  }
}

// While its last tensor is being read.
TEST(LoadShard, a_file_that_shrinks_while_it_is_read_is_named) {
  const ModelShape shape = test_shape(1);
  const TemporaryFolder folder;
  write_tensors(folder / "model.safetensors", random_tensors(shape, 3));
  const Checkpoint checkpoint = Checkpoint::open(folder.path());
  int tensors = 0;
  Loaded kept;
  const std::string message = model_error([&] {
    load_shard(checkpoint, ShardPlan(shape, {}), 0, [&](const LocalTensor& tensor) {
      if (++tensors == 5) std::filesystem::resize_file(folder / "model.safetensors", 10);
      kept = {tensor, {}, 0};
      return std::make_unique<KeepingSink>(&kept);
    });
  });
  EXPECT_NE(message.find("file shrank"), std::string::npos) << message;
  EXPECT_EQ(tensors, 5);
}

TEST(LoadShard, a_null_sink_reads_nothing) {
  const ModelShape shape = test_shape(1);
  const TemporaryFolder folder;
  write_tensors(folder / "model.safetensors", random_tensors(shape, 3));
  const Tally tally =
      load_shard(Checkpoint::open(folder.path()), ShardPlan(shape, {}), 0, [](const LocalTensor&) { return nullptr; });
  EXPECT_EQ(tally.bytes_read, 0u);
}

uint64_t number_after(const char* file, const std::string& key) {
  std::ifstream in(file);
  for (std::string word; in >> word;) {
    if (word == key) {
      uint64_t value = 0;
      in >> value;
      return value;
    }
  }
  return 0;
}

class NoSink : public WeightSink {
 public:
  void rows(int64_t, int64_t, std::span<const std::byte>) override {}
};

// 520 MiB of holes: neither memory nor reads may follow the whole.
class LargeCheckpoint : public testing::Test {
 protected:
  LargeCheckpoint() {
    const ShardPlan plan(shape_, {});
    nlohmann::ordered_json header;
    uint64_t offset = 0;
    for (const Rule& rule : plan.rules()) {
      const int layer = rule.scope == Scope::kModel ? -1 : 0;
      const uint64_t bytes = static_cast<uint64_t>(count_of(rule.shape)) * 2;
      header[plan.tensor_name(rule, layer)] = {
          {"dtype", "BF16"}, {"shape", rule.shape}, {"data_offsets", {offset, offset + bytes}}};
      offset += bytes;
    }
    write_sparse(folder_ / "model.safetensors", header.dump(), offset);
  }
  Tally load(int ranks) {
    const ShardPlan plan(shape_, {.ranks = ranks});
    return load_shard(Checkpoint::open(folder_.path()), plan, 0,
                      [](const LocalTensor&) { return std::make_unique<NoSink>(); });
  }

  ModelShape shape_ = [] {
    ModelShape shape = dense_shape({32, 8, 64, 8192, 100000, 2048, 1});
    shape.tied_head = true;
    return shape;
  }();
  TemporaryFolder folder_;
};

TEST_F(LargeCheckpoint, loading_needs_no_memory_beyond_one_block) {
  load(2);  // whatever the first load leaves behind
  const uint64_t before = number_after("/proc/self/status", "RssAnon:");
  uint64_t peak = before;
  const ShardPlan plan(shape_, {});
  class Watching : public WeightSink {
   public:
    explicit Watching(uint64_t* peak_kib) : peak_kib_(peak_kib) {}
    void rows(int64_t, int64_t, std::span<const std::byte>) override {
      *peak_kib_ = std::max(*peak_kib_, number_after("/proc/self/status", "RssAnon:"));
    }

   private:
    uint64_t* peak_kib_;
  };
  const Tally tally = load_shard(Checkpoint::open(folder_.path()), plan, 0,
                                 [&](const LocalTensor&) { return std::make_unique<Watching>(&peak); });
  EXPECT_GT(tally.bytes_read, uint64_t{500} << 20);
  EXPECT_GT(before, 0u);
  EXPECT_LT(peak - before, 12u << 10);  // KiB: the block of 8 MiB and small change
}

// As the kernel counts it, beside the reader's own count.
TEST_F(LargeCheckpoint, a_rank_of_four_reads_a_quarter_of_the_bytes) {
  const uint64_t before = number_after("/proc/self/io", "rchar:");
  ASSERT_GT(before, 0) << "/proc/self/io tells nothing";
  const Tally tally = load(4);
  const uint64_t read = number_after("/proc/self/io", "rchar:") - before;
  EXPECT_LT(tally.bytes_read, uint64_t{132} << 20);
  EXPECT_GE(read, tally.bytes_read);
  EXPECT_LT(read, tally.bytes_read + (64 << 10));  // headers, and /proc
}

}  // namespace
}  // namespace coprime
