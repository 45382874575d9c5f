#include "checkpoint/padding_check.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "base/number_formats.h"
#include "checkpoint/row_reader.h"

namespace coprime {
namespace {

using Bytes = std::vector<std::byte>;

// The parts of an axis that are padded each at its own end, in elements: as the file has them, and as they become.
struct Section {
  int64_t stock, padded;
};

std::vector<Section> sections_of(const Rule& rule, const ShardPlan& plan) {
  if (!rule.axis || rule.op == Operation::kColumns) return {{rule.shape[0], rule.shape[0]}};
  if (rule.op != Operation::kSections) return {{rule.shape[0], plan.padded_size(*rule.axis)}};
  const LinearAttentionShape& linear = plan.shape().linear;
  const Counts stock = plan.stock(), padded = plan.padded();
  const Section keys = {int64_t{stock.linear_key_heads} * linear.key_dim,
                        int64_t{padded.linear_key_heads} * linear.key_dim};
  return {
      keys,
      keys,
      {int64_t{stock.linear_value_heads} * linear.value_dim, int64_t{padded.linear_value_heads} * linear.value_dim}};
}

// Where GGUF's converters put the model's element `e` of `heads` heads of `per_head` elements: the pairs of a rotation
// side by side, or value heads by their place under a key head.
int64_t rotary_place(int64_t e, int64_t per_head) {
  const int64_t head = e / per_head, i = e % per_head, half = per_head / 2;
  return head * per_head + (i < half ? 2 * i : 2 * (i - half) + 1);
}
int64_t tiled_place(int64_t e, int64_t per_head, int64_t key_heads, int64_t value_heads) {
  const int64_t head = e / per_head, ratio = value_heads / key_heads;
  return (head % ratio * key_heads + head / ratio) * per_head + e % per_head;
}

// The place in the file of the model's element `e` of an axis.
int64_t place_in_file(const ShardPlan& plan, const Rule& rule, FileOrder order, int64_t e) {
  const ModelShape& shape = plan.shape();
  const LinearAttentionShape& linear = shape.linear;
  if (order == FileOrder::kRotaryPairs) return rotary_place(e, shape.head_dim);
  if (order == FileOrder::kModel) return e;
  const bool heads_only = rule.axis == Axis::kValueHeads;
  // Of a convolution's channels the values alone are tiled.
  const int64_t first = rule.op == Operation::kSections ? 2 * int64_t{linear.key_heads} * linear.key_dim : 0;
  if (e < first) return e;
  return first + tiled_place(e - first, heads_only ? 1 : linear.value_dim, linear.key_heads, linear.value_heads);
}

// Of each padded row its row in the file; -1: fill.
std::vector<int64_t> expected_rows(const Rule& rule, const ShardPlan& plan) {
  std::vector<int64_t> rows;
  int64_t model = 0;
  for (const Section& section : sections_of(rule, plan)) {
    for (int64_t i = 0; i < section.padded; ++i) {
      rows.push_back(i < section.stock ? place_in_file(plan, rule, rule.row_order, model + i) : -1);
    }
    model += section.stock;
  }
  return rows;
}

int64_t file_columns(const Rule& rule) {
  int64_t columns = 1;
  for (size_t i = 1; i < rule.shape.size(); ++i) columns *= rule.shape[i];
  return columns;
}

// The file's own bytes of a row of one of its tensors.
Bytes row_of_file(const Checkpoint::Located& at, int64_t row, int64_t rows) {
  Bytes bytes(static_cast<size_t>(at.tensor->bytes / static_cast<uint64_t>(rows)));
  at.file->read(at.tensor->offset + bytes.size() * static_cast<uint64_t>(row), bytes);
  return bytes;
}

class PaddingCheck {
 public:
  PaddingCheck(const Match& match, const ShardPlan& plan)
      : match_(match), plan_(plan), rule_(*match.rule), local_(local_tensor(match, plan, 0)) {}

  void run() {
    const std::vector<int64_t> rows = expected_rows(rule_, plan_);
    const int64_t columns = rule_.op == Operation::kColumns ? plan_.padded_size(*rule_.axis) : file_columns(rule_);
    const BlockShape block = block_shape(local_.type);
    // Columns that are no whole blocks are held without their dummies, to the end of the last block.
    const int64_t held =
        local_.inputs ? (file_columns(rule_) + block.elements - 1) / block.elements * block.elements : columns;
    if (local_.rows.extent != static_cast<int64_t>(rows.size()) || local_.columns.extent != held) {
      wrong(0, fmt::format("is held as {} x {}; expected {} x {}", local_.rows.extent, local_.columns.extent,
                           rows.size(), held));
    }
    const auto reader = make_row_reader(match_, local_);
    Bytes found(static_cast<size_t>(reader->row_bytes()));
    for (int64_t row = 0; row < local_.rows.extent; ++row) {
      reader->read_rows(row, 1, found.data());
      check_row(row, rows[static_cast<size_t>(row)], found);
    }
  }

 private:
  [[noreturn]] void wrong(int64_t row, const std::string& what) const {
    fail(ErrorKind::kModel, "{}: tensor {}, padded, at row {}: {}; this is a mistake of coprime: please report it",
         match_.at.file->path().string(), match_.at.tensor->name, row, what);
  }
  void expect(bool holds, int64_t row, std::string_view what) const {
    if (!holds) wrong(row, std::string(what));
  }

  void check_row(int64_t row, int64_t from, const Bytes& found) const {
    if (match_.format == nullptr) {
      check_plain(row, from, found);
    } else if (local_.type == DType::kMxfp4) {
      check_mxfp4(row, from, found);
    } else {
      check_fp8(row, from, found);
    }
  }

  // Whole elements or blocks: the file's, in the order of the model's columns, then zeros.
  void check_plain(int64_t row, int64_t from, const Bytes& found) const {
    Bytes expected(found.size());
    if (from >= 0) {
      const Bytes file = row_of_file(match_.at, from, rule_.shape[0]);
      const BlockShape block = block_shape(local_.type);
      const auto size = static_cast<size_t>(block.bytes);
      // Blocks that straddle heads stay in the file's order.
      const FileOrder order = local_.inputs ? FileOrder::kModel : rule_.column_order;
      for (size_t i = 0; i * size < file.size(); ++i) {
        const int64_t at =
            place_in_file(plan_, rule_, order, static_cast<int64_t>(i) * block.elements) / block.elements;
        std::memcpy(expected.data() + i * size, file.data() + static_cast<size_t>(at) * size, size);
      }
    }
    expect(found == expected, row, "other bytes than the file's, or a fill that is not zero");
  }

  void check_mxfp4(int64_t row, int64_t from, const Bytes& found) const {
    const Bytes codes = from < 0 ? Bytes() : row_of_file(match_.at, from, rule_.shape[0]);
    const Bytes scales = from < 0 ? Bytes() : row_of_file(match_.scales, from, rule_.shape[0]);
    int largest = 0;
    for (size_t b = 0; b * 17 < found.size(); ++b) {
      const std::byte* block = found.data() + 17 * b;
      const std::byte fill = from < 0 ? std::byte{0x7f} : std::byte{0};
      expect(block[0] == (b < scales.size() ? scales[b] : fill), row, "another scale");
      largest = std::max(largest, static_cast<int>(block[0]));
      for (size_t i = 0; i < 32; ++i) {
        const size_t k = 32 * b + i;
        const int code = static_cast<int>(block[1 + i % 16]) >> (i < 16 ? 0 : 4) & 15;
        const int expected = k / 2 < codes.size() ? static_cast<int>(codes[k / 2]) >> (k % 2 == 0 ? 0 : 4) & 15 : 0;
        expect(code == expected, row, "another code");
      }
    }
    const auto before = std::ranges::max_element(scales);
    expect(from < 0 || before == scales.end() || largest == static_cast<int>(*before), row,
           "the largest exponent has moved");
  }

  void check_fp8(int64_t row, int64_t from, const Bytes& found) const {
    const StoredPart& part = match_.format->scales;
    const int64_t scale_rows = (rule_.shape[0] + part.rows - 1) / part.rows;
    const Bytes codes = from < 0 ? Bytes() : row_of_file(match_.at, from, rule_.shape[0]);
    const Bytes scales = from < 0 ? Bytes() : row_of_file(match_.scales, from / part.rows, scale_rows);
    for (size_t b = 0; b * 132 < found.size(); ++b) {
      const std::byte* block = found.data() + 132 * b;
      float scale;
      std::memcpy(&scale, block, 4);
      expect(scale == (b * 128 < codes.size() ? fp8_scale(scales, part.columns == 0 ? 0 : b) : 1.0f), row,
             "another scale");
      for (size_t i = 0; i < 128; ++i) {
        const size_t k = 128 * b + i;
        expect(block[4 + i] == (k < codes.size() ? codes[k] : std::byte{0}), row, "another code");
      }
    }
  }

  float fp8_scale(const Bytes& scales, size_t at) const {
    if (match_.scales.tensor->type == DType::kBF16) {
      return bf16_to_f32(
          static_cast<uint16_t>(static_cast<int>(scales[2 * at]) | static_cast<int>(scales[2 * at + 1]) << 8));
    }
    float scale;
    std::memcpy(&scale, scales.data() + 4 * at, 4);
    return scale;
  }

  const Match& match_;
  const ShardPlan& plan_;
  const Rule& rule_;
  LocalTensor local_;
};

}  // namespace

void check_padding(const Match& match, const ShardPlan& plan) {
  COPRIME_CHECK(plan.ranks() == 1 && plan.options().dummies == Dummies::kHeld, "a plan of {} ranks", plan.ranks());
  PaddingCheck(match, plan).run();
}

}  // namespace coprime
