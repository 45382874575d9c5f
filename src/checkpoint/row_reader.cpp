#include "checkpoint/row_reader.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/number_formats.h"
#include "geometry/held_columns.h"

namespace coprime {
namespace {

constexpr int64_t kStageBytes = 1 << 20;

int64_t matrix_columns(const TensorInfo& tensor) {
  int64_t columns = 1;
  for (size_t i = 1; i < tensor.shape.size(); ++i) columns *= tensor.shape[i];
  return columns;
}

// Rows of a tensor of which a rank holds some columns. `unit` says how many bytes so many columns take; `columns` are
// those of the file.
class SpanReader {
 public:
  SpanReader(const Checkpoint::Located& at, BlockShape unit, int64_t columns, const AxisMap& held)
      : file_(*at.file), offset_(at.tensor->offset), unit_(unit), columns_(columns), held_(held) {}

  int64_t row_bytes() const { return bytes_of(held_.extent); }
  uint64_t bytes_read() const { return bytes_read_; }

  // Consecutive rows of the file to consecutive local rows. Gaps among the columns stay as they are.
  void read(int64_t row, int64_t count, std::byte* to) {
    const int64_t file_row = bytes_of(columns_), local_row = row_bytes();
    const std::vector<Span>& spans = held_.real;
    const bool whole = file_row == local_row && spans.size() == 1 && bytes_of(spans[0].count) == file_row;
    if (whole) return read_bytes(row * file_row, count * file_row, to);
    for (int64_t r = 0; r < count; ++r) {
      for (const Span& span : spans) {
        const int64_t held =
            std::min(span.count, columns_ - span.global);  // a last block may reach past the file's end
        read_bytes((row + r) * file_row + bytes_of(span.global), bytes_of(held),
                   to + r * local_row + bytes_of(span.local));
      }
    }
  }

 private:
  // Of so many columns, which are whole units.
  int64_t bytes_of(int64_t columns) const { return columns / unit_.elements * unit_.bytes; }

  void read_bytes(int64_t from, int64_t bytes, std::byte* to) {
    file_.read(offset_ + static_cast<uint64_t>(from), {to, static_cast<size_t>(bytes)});
    bytes_read_ += static_cast<uint64_t>(bytes);
  }

  const InputFile& file_;
  uint64_t offset_, bytes_read_ = 0;
  BlockShape unit_;
  int64_t columns_;
  const AxisMap& held_;
};

// fn(row of the file, count, first of them among the local ones) for the real rows among local [first, first + count).
template <class Fn>
void for_real_rows(const LocalTensor& local, int64_t first, int64_t count, const Fn& fn) {
  for (const Span& span : local.rows.real) {
    const int64_t begin = std::max(first, span.local), end = std::min(first + count, span.local + span.count);
    if (begin < end) fn(span.global + begin - span.local, end - begin, begin);
  }
}

bool has_fill(const LocalTensor& local) {
  return local.rows.real_count() != local.rows.extent || local.columns.real_count() != local.columns.extent;
}

class PlainReader final : public RowReader {
 public:
  PlainReader(const Match& match, const LocalTensor& local)
      : local_(local), reader_(match.at, block_shape(local.type), matrix_columns(*match.at.tensor), local.columns) {}

  int64_t row_bytes() const override { return reader_.row_bytes(); }
  uint64_t bytes_read() const override { return reader_.bytes_read(); }
  void read_rows(int64_t first, int64_t count, std::byte* to) override {
    if (has_fill(local_)) std::memset(to, 0, static_cast<size_t>(count * row_bytes()));
    for_real_rows(local_, first, count, [&](int64_t row, int64_t rows, int64_t at) {
      reader_.read(row, rows, to + (at - first) * row_bytes());
    });
  }

 private:
  const LocalTensor& local_;
  SpanReader reader_;
};

// Codes of a byte or a nibble, staged a few rows at a time and put together with their scales.
class StoredReader : public RowReader {
 public:
  StoredReader(const Match& match, const LocalTensor& local, BlockShape unit)
      : local_(local),
        shape_(block_shape(local.type)),
        codes_(match.at, unit, match.rule->shape[1], local.columns),
        staged_(static_cast<size_t>(std::max(codes_.row_bytes(), kStageBytes))) {}

  int64_t row_bytes() const override { return blocks() * shape_.bytes; }

  void read_rows(int64_t first, int64_t count, std::byte* to) override {
    if (has_fill(local_)) {
      for (int64_t block = 0; block < count * blocks(); ++block) fill_block(to + block * shape_.bytes);
    }
    const int64_t code_bytes = codes_.row_bytes();
    const int64_t step = std::max<int64_t>(static_cast<int64_t>(staged_.size()) / std::max<int64_t>(code_bytes, 1), 1);
    for_real_rows(local_, first, count, [&](int64_t row, int64_t rows, int64_t at) {
      for (int64_t done = 0; done < rows; done += step) {
        const int64_t some = std::min(step, rows - done);
        std::memset(staged_.data(), 0, static_cast<size_t>(some * code_bytes));
        codes_.read(row + done, some, staged_.data());
        read_scales(row + done, some);
        for (int64_t r = 0; r < some; ++r) {
          std::byte* out = to + (at + done + r - first) * row_bytes();
          put_row(row + done, r, staged_.data() + r * code_bytes, out);
        }
      }
    });
  }

 protected:
  int64_t blocks() const { return local_.columns.extent / shape_.elements; }

  virtual void fill_block(std::byte* to) const = 0;
  virtual void read_scales(int64_t row, int64_t count) = 0;
  // Row `r` of those whose scales were read last, from `first_row` of the file on.
  virtual void put_row(int64_t first_row, int64_t r, const std::byte* codes, std::byte* to) = 0;

  const LocalTensor& local_;
  const BlockShape shape_;
  SpanReader codes_;
  std::vector<std::byte> staged_;
};

class Mxfp4Reader final : public StoredReader {
 public:
  Mxfp4Reader(const Match& match, const LocalTensor& local)
      : StoredReader(match, local, {2, 1}),
        exponents_(match.scales, {static_cast<int>(kMxBlock), 1}, match.rule->shape[1], local.columns) {}
  uint64_t bytes_read() const override { return codes_.bytes_read() + exponents_.bytes_read(); }

 private:
  void fill_block(std::byte* to) const override {
    std::memset(to, 0, static_cast<size_t>(shape_.bytes));
    to[0] = std::byte{0x7f};
  }
  void read_scales(int64_t row, int64_t count) override {
    scales_.assign(static_cast<size_t>(count * exponents_.row_bytes()), std::byte{0});
    exponents_.read(row, count, scales_.data());
  }
  // From nibbles of consecutive columns to nibbles of columns j and j + 16, as GGUF has them.
  void put_row(int64_t, int64_t r, const std::byte* codes, std::byte* to) override {
    const std::byte* scales = scales_.data() + r * exponents_.row_bytes();
    for (int64_t b = 0; b < blocks(); ++b, codes += kMxBlock / 2, to += shape_.bytes) {
      to[0] = scales[b];
      for (int j = 0; j < 8; ++j) {
        const std::byte low = codes[j], high = codes[8 + j];
        to[1 + 2 * j] = (low & std::byte{15}) | high << 4;
        to[2 + 2 * j] = low >> 4 | (high & std::byte{0xf0});
      }
    }
  }

  SpanReader exponents_;
  std::vector<std::byte> scales_;
};

// A scale of F32 or BF16 at `bytes`, as float.
float scale_at(DType type, const std::byte* bytes) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes, sizeof bits);
  return bf16_to_f32(bits);
}

class Fp8Reader final : public StoredReader {
 public:
  Fp8Reader(const Match& match, const LocalTensor& local)
      : StoredReader(match, local, {1, 1}),
        at_(match.scales),
        rows_(match.format->scales.rows),
        per_row_(match.format->scales.columns == 0
                     ? 1
                     : *stored_size(match.rule->shape[1], kFp8BlockSize, /*partial=*/true)) {
    for (const Span& span : local.columns.real) {
      for (int64_t c = 0; c < span.count; c += kFp8BlockSize) {
        global_.resize(static_cast<size_t>((span.local + c) / kFp8BlockSize + 1), -1);
        global_.back() = (span.global + c) / kFp8BlockSize;
      }
    }
    global_.resize(static_cast<size_t>(blocks()), -1);
  }
  uint64_t bytes_read() const override { return codes_.bytes_read() + scale_bytes_; }

 private:
  static void put_scale(float scale, std::byte* to) { std::memcpy(to, &scale, sizeof scale); }

  void fill_block(std::byte* to) const override {
    std::memset(to, 0, static_cast<size_t>(shape_.bytes));
    put_scale(1, to);
  }
  void read_scales(int64_t row, int64_t count) override {
    const int64_t first = row / rows_, last = (row + count - 1) / rows_ + 1;
    const int64_t bytes = dtype_bytes(at_.tensor->type) * per_row_;
    scales_.resize(static_cast<size_t>((last - first) * bytes));
    at_.file->read(at_.tensor->offset + static_cast<uint64_t>(first * bytes), scales_);
    scale_bytes_ += scales_.size();
  }
  void put_row(int64_t first_row, int64_t r, const std::byte* codes, std::byte* to) override {
    const DType type = at_.tensor->type;
    const int64_t scale_row = (first_row + r) / rows_ - first_row / rows_;
    for (int64_t b = 0; b < blocks(); ++b, codes += kFp8BlockSize, to += shape_.bytes) {
      const int64_t global = global_[static_cast<size_t>(b)];
      const int64_t place = scale_row * per_row_ + (per_row_ == 1 ? 0 : global);
      put_scale(global < 0 ? 1.0f : scale_at(type, scales_.data() + place * dtype_bytes(type)), to);
      std::memcpy(to + 4, codes, kFp8BlockSize);
    }
  }

  const Checkpoint::Located& at_;
  int64_t rows_, per_row_;       // of the matrix, that a row of scales is for; scales in it
  std::vector<int64_t> global_;  // of each local block its place in the file; -1: fill
  std::vector<std::byte> scales_;
  uint64_t scale_bytes_ = 0;
};

}  // namespace

DType row_type(const Match& match) {
  if (match.format == nullptr) return match.at.tensor->type;
  return match.format->format == WeightFormat::kMxfp4 ? DType::kMxfp4 : DType::kFp8;
}

LocalTensor local_tensor(const Match& match, const ShardPlan& plan, int rank) {
  const DType type = row_type(match);
  HeldColumns columns = hold_whole_blocks(plan.file_column_map(*match.rule, rank), block_shape(type).elements);
  return {match.rule,
          match.layer,
          match.at.tensor->name,
          type,
          plan.file_row_map(*match.rule, rank),
          std::move(columns.held),
          std::move(columns.inputs)};
}

std::unique_ptr<RowReader> make_row_reader(const Match& match, const LocalTensor& local) {
  COPRIME_CHECK(local.type == row_type(match), "{}: rows of {}", local.name, dtype_name(local.type));
  if (match.format == nullptr) return std::make_unique<PlainReader>(match, local);
  if (local.type == DType::kMxfp4) return std::make_unique<Mxfp4Reader>(match, local);
  return std::make_unique<Fp8Reader>(match, local);
}

}  // namespace coprime
