#include "model/step_batch.h"

#include <cstring>

#include "base/error.h"

namespace coprime {
namespace {

constexpr uint32_t kBatchVersion = 0x43530004, kResultVersion = 0x43520002;
constexpr uint32_t kMaxElements = 1u << 28;        // of any list: far above real ones, and no overflow of sizes
constexpr int64_t kMaxTraceNs = int64_t{1} << 60;  // of a monotonic clock: 36 years

class Writer {
 public:
  explicit Writer(std::vector<std::byte>& bytes) : bytes_(bytes) { bytes_.clear(); }
  template <class T>
  void put(const T& value) {
    append(&value, sizeof value);
  }
  template <class T>
  void put_list(const std::vector<T>& list) {
    put(static_cast<uint32_t>(list.size()));
    append(list.data(), list.size() * sizeof(T));
  }

 private:
  void append(const void* data, size_t size) {
    const size_t at = bytes_.size();
    bytes_.resize(at + size);
    if (size > 0) std::memcpy(bytes_.data() + at, data, size);
  }
  std::vector<std::byte>& bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  void get(T& value) {
    take(&value, sizeof value);
  }
  template <class T>
  void get_list(std::vector<T>& list) {
    uint32_t count = 0;
    get(count);
    if (count > kMaxElements || count * sizeof(T) > bytes_.size())
      fail(ErrorKind::kInternal, "a step message claims {} elements", count);
    list.resize(count);
    take(list.data(), count * sizeof(T));
  }
  // Of elements that take at least `least` bytes each.
  uint32_t get_count(size_t least) {
    uint32_t count = 0;
    get(count);
    if (count > bytes_.size() / least) fail(ErrorKind::kInternal, "a step message claims {} elements", count);
    return count;
  }
  void expect_version(uint32_t version) {
    uint32_t found = 0;
    get(found);
    if (found != version) fail(ErrorKind::kInternal, "a step message of version {:#x}, expected {:#x}", found, version);
  }
  void expect_end() const {
    if (!bytes_.empty()) fail(ErrorKind::kInternal, "a step message has {} bytes too many", bytes_.size());
  }

 private:
  void take(void* into, size_t size) {
    if (size > bytes_.size()) fail(ErrorKind::kInternal, "a step message ends early");
    if (size > 0) std::memcpy(into, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  std::span<const std::byte> bytes_;
};

}  // namespace

std::vector<std::byte> encode(const StepBatch& batch) {
  std::vector<std::byte> bytes;
  Writer writer(bytes);
  writer.put(kBatchVersion);
  writer.put(batch.step);
  writer.put(batch.next_rows);
  writer.put(static_cast<uint8_t>(batch.trace));
  writer.put(static_cast<uint32_t>(batch.sequences.size()));
  for (const SequenceRows& rows : batch.sequences) {
    writer.put(rows.sequence);
    writer.put(rows.kind);
    writer.put(rows.start);
    writer.put(rows.rows);
    writer.put(rows.pages.first);
    writer.put_list(rows.pages.pages);
    writer.put(rows.state_in);
    writer.put(rows.state_out);
    writer.put_list(rows.logits);
  }
  writer.put_list(batch.ids);
  writer.put_list(batch.cancelled);
  return bytes;
}

StepBatch decode_step_batch(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  StepBatch batch;
  reader.expect_version(kBatchVersion);
  reader.get(batch.step);
  reader.get(batch.next_rows);
  uint8_t trace = 0;
  reader.get(trace);
  batch.trace = trace != 0;
  if (batch.next_rows < 1) fail(ErrorKind::kInternal, "a next step of {} rows", batch.next_rows);
  batch.sequences.resize(reader.get_count(32));
  int64_t total = 0;
  for (SequenceRows& rows : batch.sequences) {
    reader.get(rows.sequence);
    reader.get(rows.kind);
    reader.get(rows.start);
    reader.get(rows.rows);
    reader.get(rows.pages.first);
    reader.get_list(rows.pages.pages);
    reader.get(rows.state_in);
    reader.get(rows.state_out);
    reader.get_list(rows.logits);
    if (rows.rows < 1 || rows.start < 0 || rows.start > (int64_t{1} << 40) || rows.kind > RowsKind::kDecode) {
      fail(ErrorKind::kInternal, "a step of {} rows at {}", rows.rows, rows.start);
    }
    for (const LogitsRequest& request : rows.logits) {
      if (request.row < 0 || request.row >= rows.rows || request.top_k < 0) {
        fail(ErrorKind::kInternal, "logits of row {} of {}, top {}", request.row, rows.rows, request.top_k);
      }
    }
    total += rows.rows;
  }
  reader.get_list(batch.ids);
  reader.get_list(batch.cancelled);
  if (total != batch.rows()) fail(ErrorKind::kInternal, "a step of {} rows has {} ids", total, batch.rows());
  reader.expect_end();
  return batch;
}

void encode(const StepResult& result, std::vector<std::byte>& into) {
  Writer writer(into);
  writer.put(kResultVersion);
  writer.put(result.step);
  writer.put(static_cast<uint32_t>(result.rows.size()));
  for (const ShardLogits& row : result.rows) {
    writer.put_list(row.best);
    writer.put_list(row.all);
  }
  writer.put_list(result.gate_hashes);
  writer.put(result.compute_us);
  writer.put(result.gate_us);
  writer.put(result.recorded.clock);
  writer.put(result.recorded.overwritten);
  writer.put_list(result.recorded.events);
}

StepResult decode_step_result(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  StepResult result;
  reader.expect_version(kResultVersion);
  reader.get(result.step);
  result.rows.resize(reader.get_count(8));
  for (ShardLogits& row : result.rows) {
    reader.get_list(row.best);
    reader.get_list(row.all);
  }
  reader.get_list(result.gate_hashes);
  reader.get(result.compute_us);
  reader.get(result.gate_us);
  reader.get(result.recorded.clock);
  reader.get(result.recorded.overwritten);
  reader.get_list(result.recorded.events);
  for (const TraceEvent& event : result.recorded.events) {
    if (static_cast<uint32_t>(event.kind) >= kTraceKinds || event.begin_ns < 0 || event.end_ns < event.begin_ns ||
        event.end_ns > kMaxTraceNs) {
      fail(ErrorKind::kInternal, "a traced event of kind {} from {} to {} ns", static_cast<uint32_t>(event.kind),
           event.begin_ns, event.end_ns);
    }
  }
  reader.expect_end();
  return result;
}

}  // namespace coprime
