// What a pair of ranks posts for each gate of a schedule over one queue pair, and which way the rows of each class go.
// Immutable, and the same at both ends: both build it from the same schedule and the same (agreed) limits.
//
// A class goes by a decode window where the receives of `lookahead` consecutive gates may be posted at a time; else by
// a verify window, which posts those of two; else in bulk. Classes above one row may well do so while one row does not
// have to. Where the cap is DS4_TP_RDMA_MAX_MSG, single rows that take more than two chunks do not travel in a decode
// window (decode_vector_chunks()); gathers have no such limit.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "gate/chunking.h"
#include "gate/constants.h"
#include "gate/schedule.h"

namespace coprime {

enum class Service : uint32_t { kDecodeWindow, kVerifyWindow, kBulk };

class WindowPlan {
 public:
  // `agreed`: for each limit the smaller of both ends. Error(kUsage) where not even one message fits them.
  WindowPlan(const GateSchedule& schedule, const QueuePairLimits& agreed, int lookahead = DS4_TP_RDMA_RECV_WINDOW);

  const GateSchedule& schedule() const { return schedule_; }
  const QueuePairLimits& limits() const { return limits_; }
  int64_t entries() const { return static_cast<int64_t>(schedule_.size()); }
  uint64_t lookahead() const { return static_cast<uint64_t>(lookahead_); }

  Service service(RowClass row_class) const {
    return row_class == RowClass::kBulk ? Service::kBulk : of(row_class).service;
  }
  // Why a class that might have had a decode window has none; empty if it has.
  const std::string& reason(RowClass row_class) const { return of(row_class).reason; }

  // Of the classes with a window.
  struct Gate {
    size_t capacity = 0;  // bytes of the receives of one gate
    int64_t chunks = 0;
  };
  const Gate& gate(int64_t entry, RowClass row_class) const { return of(row_class).gates[static_cast<size_t>(entry)]; }
  size_t largest_capacity() const { return largest_capacity_; }  // of all classes with a window

  size_t chunk_bytes() const { return chunk_bytes_; }  // no message is longer, nor any slot
  // Messages of the largest size that may be posted and not yet complete.
  int64_t send_messages() const { return send_messages_; }
  int64_t bulk_window_messages() const { return bulk_window_messages_; }  // receives, at most kBulkWindowReceives
  size_t dummy_bytes() const;                                             // room that a dummy needs

 private:
  struct Class {
    Service service = Service::kBulk;
    std::string reason;
    std::vector<Gate> gates;
  };
  const Class& of(RowClass row_class) const { return classes_[static_cast<size_t>(row_class)]; }
  void plan_class(RowClass row_class);
  std::string why_not(const Class& planned, int gates) const;
  std::string why_no_decode_vector() const;

  GateSchedule schedule_;
  QueuePairLimits limits_;
  int lookahead_;
  size_t chunk_bytes_ = 0, largest_capacity_ = 0;
  int64_t send_messages_ = 0, bulk_window_messages_ = 0;
  std::array<Class, kWindowClasses> classes_;
};

}  // namespace coprime
