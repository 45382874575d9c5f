// What lies in a PE's HBM region in data mode: for each turn of its kernel queries, keys (tiles of [d, tile], one
// behind another), values [tokens, d], all made when they are read, and the output.
#pragma once

#include <vector>

#include "tl/evaluate.h"
#include "tl/inputs.h"

namespace coprime::tl {

// The buffers of a turn (a kernel that works for several heads, one after another, has a turn for each).
enum class Content : uint8_t { kQueries, kKeys, kValues, kOutput };
inline constexpr uint32_t kContents = 4;
constexpr Buffer buffer_of(Content content, uint32_t turn = 0, Type type = Type::kBf16) {
  return {turn * kContents + static_cast<uint32_t>(content), type};
}
// Buffers of plain memory beside those, of any type: what was written is read again.
inline constexpr uint32_t kFirstPlainBuffer = 1 << 20;
constexpr Buffer plain_buffer(uint32_t number, Type type = Type::kBf16) { return {kFirstPlainBuffer + number, type}; }
inline constexpr Buffer kQueries = buffer_of(Content::kQueries), kKeys = buffer_of(Content::kKeys),
                        kValues = buffer_of(Content::kValues), kOutput = buffer_of(Content::kOutput);

// What the buffers of a turn hold. Queries and outputs lie in blocks of [heads * positions, d], the rows of a query
// head together; the block whose first position is x begins at row `heads * (x - first_query)`.
struct MemoryLayout {
  int head = 0;             // KV head
  int64_t first_token = 0;  // of keys and values
  int64_t tile = 64, d = 128;
  int64_t group = 8;                        // query heads of the KV head
  int64_t first_query_head = 0, heads = 8;  // of those, the ones that are here
  int64_t first_query = 0;                  // position
};

class RankMemory : public Hbm {
 public:
  RankMemory(const Inputs& inputs, std::vector<MemoryLayout> turns) : inputs_(inputs), turns_(std::move(turns)) {}

  void read(const HbmRef& from, std::byte* into) override;
  void write(const HbmRef& to, const std::byte* from) override;

  // What was stored, in order.
  struct Store {
    const MemoryLayout* layout;
    int64_t row;  // of the buffer
    int64_t rows;
    std::vector<float> values;  // [rows, d]
  };
  const std::vector<Store>& stores() const { return stores_; }

 private:
  const Inputs& inputs_;
  const std::vector<MemoryLayout> turns_;
  std::vector<uint16_t> row_;
  std::vector<std::vector<std::byte>> plain_;  // by number
  std::vector<Store> stores_;
};

}  // namespace coprime::tl
