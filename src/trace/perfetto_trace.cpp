#include "trace/perfetto_trace.h"

#include <bit>

#include "base/check.h"

namespace coprime {
namespace {

// Field numbers of perfetto/trace/*.proto, which is public and keeps them.
namespace field {
constexpr int kTracePacket = 1;
constexpr int kTimestamp = 8, kSequenceId = 10, kTrackEvent = 11, kInternedData = 12, kSequenceFlags = 13,
              kTrackDescriptor = 60;                                                           // of TracePacket
constexpr int kUuid = 1, kTrackName = 2, kParent = 5, kChildOrdering = 11, kSiblingRank = 12;  // of TrackDescriptor
constexpr int kCategoryId = 3, kAnnotation = 4, kType = 9, kNameId = 10, kTrackUuid = 11, kFlow = 47,
              kTerminatingFlow = 48;                      // of TrackEvent
constexpr int kAnnotationNameId = 1, kAnnotationInt = 4;  // of DebugAnnotation
constexpr int kIid = 1, kText = 2;                        // of each entry of InternedData, whose fields are 1 + Table
}  // namespace field

constexpr uint64_t kSliceBegin = 1, kSliceEnd = 2;
constexpr uint64_t kStateCleared = 1, kNeedsState = 2;
constexpr uint64_t kExplicitOrder = 3;  // siblings by their rank
constexpr uint64_t kSequence = 1;

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void put(std::string& out, int number, uint64_t value) {
  put_varint(out, static_cast<uint64_t>(number) << 3);
  put_varint(out, value);
}
void put_fixed64(std::string& out, int number, uint64_t value) {
  put_varint(out, static_cast<uint64_t>(number) << 3 | 1);
  for (int i = 0; i < 8; ++i) out.push_back(static_cast<char>(value >> 8 * i));
}
void put(std::string& out, int number, std::string_view bytes) {
  put_varint(out, static_cast<uint64_t>(number) << 3 | 2);
  put_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace

uint64_t PerfettoTrace::intern(Table table, std::string_view text) {
  auto& known = interned_[static_cast<size_t>(table)];
  const auto [entry, added] = known.try_emplace(std::string(text), known.size() + 1);
  if (added) {
    std::string body;
    put(body, field::kIid, entry->second);
    put(body, field::kText, text);
    put(fresh_, 1 + static_cast<int>(table), body);
  }
  return entry->second;
}

void PerfettoTrace::packet(std::string_view body) {
  std::string whole(body);
  put(whole, field::kSequenceId, kSequence);
  put(whole, field::kSequenceFlags, begun_ ? kNeedsState : kStateCleared | kNeedsState);
  if (!fresh_.empty()) put(whole, field::kInternedData, fresh_);
  fresh_.clear();
  begun_ = true;
  std::string framed;
  put(framed, field::kTracePacket, whole);
  sink_(framed);
}

PerfettoTrace::Track PerfettoTrace::add_track(std::string_view name, Track parent) {
  const Track track = ++tracks_;
  std::string descriptor, body;
  put(descriptor, field::kUuid, track);
  put(descriptor, field::kTrackName, name);
  if (parent != kNoTrack) put(descriptor, field::kParent, parent);
  put(descriptor, field::kChildOrdering, kExplicitOrder);
  put(descriptor, field::kSiblingRank, track);
  put(body, field::kTrackDescriptor, descriptor);
  packet(body);
  return track;
}

void PerfettoTrace::add(const Slice& slice) {
  COPRIME_CHECK(slice.begin_ns <= slice.end_ns && slice.track != kNoTrack && slice.track <= tracks_,
                "slice {} from {} to {} on track {}", slice.name, slice.begin_ns, slice.end_ns, slice.track);
  std::string event, body;
  put(event, field::kType, kSliceBegin);
  put(event, field::kTrackUuid, slice.track);
  put(event, field::kNameId, intern(Table::kName, slice.name));
  if (!slice.category.empty()) put(event, field::kCategoryId, intern(Table::kCategory, slice.category));
  for (const auto& [name, value] : slice.arguments) {
    std::string annotation;
    put(annotation, field::kAnnotationNameId, intern(Table::kArgument, name));
    put(annotation, field::kAnnotationInt, std::bit_cast<uint64_t>(value));
    put(event, field::kAnnotation, annotation);
  }
  for (const uint64_t flow : slice.begins_flows) put_fixed64(event, field::kFlow, flow);
  for (const uint64_t flow : slice.ends_flows) put_fixed64(event, field::kTerminatingFlow, flow);
  put(body, field::kTimestamp, slice.begin_ns);
  put(body, field::kTrackEvent, event);
  packet(body);

  event.clear();
  body.clear();
  put(event, field::kType, kSliceEnd);
  put(event, field::kTrackUuid, slice.track);
  put(body, field::kTimestamp, slice.end_ns);
  put(body, field::kTrackEvent, event);
  packet(body);
}

}  // namespace coprime
