#include "collective/communicator.h"

#include <cstring>

#include "base/check.h"
#include "base/hash.h"
#include "gate/chunking.h"

namespace coprime {
namespace {

// From this size on, reading every rank's rows costs more than a second exchange.
constexpr int64_t kOwnerSumBytes = 64 * 1024;

// The first row that a rank sums; rank `ranks` ends the last.
int64_t first_row(int rank, int rows, int ranks) { return int64_t{rows} * rank / ranks; }

}  // namespace

bool sums_by_owner(int rows, int64_t row_bytes, int ranks, bool windowed) {
  if (ranks <= 2 || rows < ranks || (windowed && row_class(rows) != RowClass::kBulk)) return false;
  return rows * row_bytes >= kOwnerSumBytes;
}

Communicator::Communicator(std::unique_ptr<Exchange> exchange)
    : exchange_(std::move(exchange)),
      schedule_(exchange_->schedule()),
      next_entry_(static_cast<int>(schedule_.size())) {
  for (const GateEntry& gate : schedule_) {
    COPRIME_CHECK(gate.row_bytes % 4 == 0, "{}: rows of {} bytes", gate_text(gate), gate.row_bytes);
  }
  gate_hashes_.reserve(schedule_.size());
}

void Communicator::break_off(const std::string& message) { exchange_->abandon(Error(ErrorKind::kInternal, message)); }

void Communicator::begin_step(int rows, int next_rows) {
  const int entries = static_cast<int>(schedule_.size());
  if (next_entry_ != 0 && next_entry_ != entries) {
    break_off(fmt::format("gate order broke: a step begins where {} of the last one is still to come",
                          gate_text(schedule_[static_cast<size_t>(next_entry_)])));
  }
  next_entry_ = 0;
  slot_rows_ = -1;
  gate_hashes_.clear();
  exchange_->begin_step(rows, next_rows);
}

View Communicator::slot(int entry, int rows) {
  const int entries = static_cast<int>(schedule_.size());
  COPRIME_CHECK(entry >= 0 && entry < entries, "gate {} of {}", entry, entries);
  const GateEntry& gate = schedule_[static_cast<size_t>(entry)];
  for (GateObserver* observer : observers_) observer->gate_asked(gate, entry, exchange_->sequence() + 1);
  if (entry != next_entry_) {
    break_off(
        fmt::format("gate order broke: {} comes where {} is next", gate_text(gate),
                    next_entry_ == entries ? "a new step" : gate_text(schedule_[static_cast<size_t>(next_entry_)])));
  }
  COPRIME_CHECK(rows >= 0 && rows <= gate.max_rows, "{}: {} rows of at most {}", gate_text(gate), rows, gate.max_rows);
  const std::span<std::byte> bytes = exchange_->out(static_cast<size_t>(rows * gate.row_bytes));
  slot_rows_ = rows;
  return make_view(reinterpret_cast<float*>(bytes.data()), rows, gate.row_bytes / 4);
}

const GateEntry& Communicator::begin_gate(int entry, int rows) {
  if (entry != next_entry_ || rows != slot_rows_) {
    break_off(fmt::format("gate order broke: entry {} with {} rows comes after the slot of entry {} with {}", entry,
                          rows, next_entry_, slot_rows_));
  }
  return schedule_[static_cast<size_t>(entry)];
}

void Communicator::finish_gate() {
  ++next_entry_;
  slot_rows_ = -1;
  ++statistics_.gates;
}

void Communicator::end_phase(GatePhase phase, size_t bytes) {
  if (!timed() || (phase != GatePhase::kFold && observers_.empty())) return;
  const int64_t begin_ns = std::exchange(phase_begin_ns_, now_ns());
  if (ranks() > 1) statistics_.time_ns += phase_begin_ns_ - begin_ns;
  for (GateObserver* observer : observers_) {
    observer->phase_ended(schedule_[static_cast<size_t>(next_entry_)],
                          {phase, next_entry_, exchange_->sequence(), bytes, begin_ns, phase_begin_ns_});
  }
}

std::span<const size_t> Communicator::incoming_from_all(size_t bytes) {
  std::fill_n(incoming_.begin(), ranks(), bytes);
  return {incoming_.data(), static_cast<size_t>(ranks())};
}

View Communicator::matrix(const GateEntry& gate, std::span<const std::byte> bytes) {
  // A device reads its terms only; View knows no const.
  return make_view(const_cast<float*>(reinterpret_cast<const float*>(bytes.data())),
                   static_cast<int64_t>(bytes.size()) / gate.row_bytes, gate.row_bytes / 4);
}

void Communicator::reduce(Device& device, int entry, int rows, const Epilogue& epilogue) {
  const GateEntry& gate = begin_gate(entry, rows);
  begin_phases();
  if (sums_by_owner(rows, gate.row_bytes, ranks(), exchange_->windowed())) {
    reduce_by_owners(device, gate, rows, epilogue);
  } else {
    reduce_at_all(device, gate, rows, epilogue);
  }
  if (hashing_) gate_hashes_.push_back(0);
  hash_also(epilogue.residual);
  if (epilogue.norm_weight != nullptr) hash_also(epilogue.normed);
  finish_gate();
}

void Communicator::reduce_at_all(Device& device, const GateEntry& gate, int rows, const Epilogue& epilogue) {
  const auto bytes = static_cast<size_t>(rows * gate.row_bytes);
  exchange_->publish(next_entry_, bytes, incoming_from_all(bytes));
  statistics_.bytes += bytes;
  end_phase(GatePhase::kPublish, bytes);
  device.expect_add_norm(epilogue.residual, epilogue.norm_weight);
  const auto views = exchange_->wait();
  end_phase(GatePhase::kWait, bytes);
  for (size_t peer = 0; peer < views.size(); ++peer) terms_[peer] = matrix(gate, views[peer]);
  device.add_norm({terms_.data(), views.size()}, epilogue.residual, epilogue.norm_weight, epilogue.eps,
                  epilogue.normed);
  exchange_->release();
  end_phase(GatePhase::kFold, bytes);
}

// Every rank sends each owner the owner's rows, and each owner sends all ranks their sum. The sum of a row is ((t0 +
// t1) + t2) + ... either way, and is stored as float before it is added to the residual: the same bits as
// reduce_at_all.
void Communicator::reduce_by_owners(Device& device, const GateEntry& gate, int rows, const Epilogue& epilogue) {
  std::array<size_t, kMaxRanks> ends;
  for (int owner = 0; owner < ranks(); ++owner) {
    ends[static_cast<size_t>(owner)] = static_cast<size_t>(first_row(owner + 1, rows, ranks()) * gate.row_bytes);
  }
  const int64_t own_rows = first_row(rank() + 1, rows, ranks()) - first_row(rank(), rows, ranks());
  const auto own_bytes = static_cast<size_t>(own_rows * gate.row_bytes);
  const auto all_bytes = static_cast<size_t>(rows * gate.row_bytes);
  exchange_->scatter(next_entry_, {ends.data(), static_cast<size_t>(ranks())}, incoming_from_all(own_bytes));
  statistics_.bytes += 2 * own_bytes;
  end_phase(GatePhase::kPublish, all_bytes);
  auto views = exchange_->wait();
  end_phase(GatePhase::kWait, all_bytes);
  for (size_t peer = 0; peer < views.size(); ++peer) terms_[peer] = matrix(gate, views[peer]);
  const std::span<std::byte> out = exchange_->out(own_bytes);
  device.sum({terms_.data(), views.size()},
             make_view(reinterpret_cast<float*>(out.data()), own_rows, gate.row_bytes / 4));
  exchange_->release();
  end_phase(GatePhase::kFold, all_bytes);

  for (int owner = 0; owner < ranks(); ++owner) {
    const int64_t count = first_row(owner + 1, rows, ranks()) - first_row(owner, rows, ranks());
    incoming_[static_cast<size_t>(owner)] = static_cast<size_t>(count * gate.row_bytes);
  }
  exchange_->publish(next_entry_, own_bytes, {incoming_.data(), static_cast<size_t>(ranks())});
  end_phase(GatePhase::kPublish, own_bytes);
  views = exchange_->wait();
  end_phase(GatePhase::kWait, own_bytes);
  for (int owner = 0; owner < ranks(); ++owner) {
    const View sum = matrix(gate, views[static_cast<size_t>(owner)]);
    const int64_t first = first_row(owner, rows, ranks()), count = sum.rows;
    const View normed = epilogue.norm_weight == nullptr ? View{} : epilogue.normed.row_range(first, count);
    device.add_norm({&sum, 1}, epilogue.residual.row_range(first, count), epilogue.norm_weight, epilogue.eps, normed);
  }
  exchange_->release();
  end_phase(GatePhase::kFold, own_bytes);
}

void Communicator::all_gather(Device&, int entry, int rows, std::span<const GatherPart> parts, View out) {
  const GateEntry& gate = begin_gate(entry, rows);
  COPRIME_CHECK(static_cast<int>(parts.size()) == ranks() && out.rows == rows, "{} parts, {} ranks; {} rows into {}",
                parts.size(), ranks(), rows, out.rows);
  // What a rank sends: from its slot's start to the end of its part of the last row.
  const auto part_bytes = [&](const GatherPart& part) -> size_t {
    COPRIME_CHECK(part.first >= 0 && part.count >= 0 && part.count * 4 <= gate.row_bytes &&
                      part.first + part.count <= out.columns,
                  "{}: columns {}+{} of {}", gate_text(gate), part.first, part.count, out.columns);
    return rows == 0 || part.count == 0 ? 0 : static_cast<size_t>((rows - 1) * gate.row_bytes + part.count * 4);
  };
  begin_phases();
  for (size_t peer = 0; peer < parts.size(); ++peer) incoming_[peer] = part_bytes(parts[peer]);
  const size_t own_bytes = incoming_[static_cast<size_t>(rank())];
  exchange_->publish(entry, own_bytes, {incoming_.data(), parts.size()});
  statistics_.bytes += own_bytes;
  end_phase(GatePhase::kPublish, own_bytes);
  const auto views = exchange_->wait();
  end_phase(GatePhase::kWait, own_bytes);
  for (size_t peer = 0; peer < views.size(); ++peer) {
    const GatherPart& part = parts[peer];
    if (part.count == 0) continue;
    for (int row = 0; row < rows; ++row) {
      std::memcpy(out.row(row) + part.first, views[peer].data() + row * gate.row_bytes,
                  static_cast<size_t>(part.count) * 4);
    }
  }
  exchange_->release();
  end_phase(GatePhase::kFold, own_bytes);
  if (hashing_) gate_hashes_.push_back(0);
  hash_also(out);
  finish_gate();
}

void Communicator::hash_also(View rows) {
  if (!hashing_) return;
  uint64_t& hash = gate_hashes_.back();
  for (int64_t row = 0; row < rows.rows; ++row) {
    hash = hash_bytes(std::as_bytes(std::span(rows.row(row), static_cast<size_t>(rows.columns))), hash);
  }
}

}  // namespace coprime
