#include "trace/perfetto_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <variant>
#include <vector>

namespace coprime {
namespace {

// A protobuf message as the wire has it: fields by number, in order.
struct Message {
  std::multimap<int, std::variant<uint64_t, std::string>> fields;

  static uint64_t varint(std::string_view bytes, size_t& at) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
  }
  static Message parse(std::string_view bytes) {
    Message message;
    for (size_t at = 0; at < bytes.size();) {
      const uint64_t tag = varint(bytes, at);
      const int number = static_cast<int>(tag >> 3);
      if ((tag & 7) == 0) {
        message.fields.emplace(number, varint(bytes, at));
      } else if ((tag & 7) == 1) {
        uint64_t value = 0;
        for (int i = 0; i < 8; ++i) value |= uint64_t{static_cast<unsigned char>(bytes.at(at++))} << 8 * i;
        message.fields.emplace(number, value);
      } else if ((tag & 7) == 2) {
        const uint64_t size = varint(bytes, at);
        if (size > bytes.size() - at) throw std::out_of_range("a field past the end");
        message.fields.emplace(number, std::string(bytes.substr(at, size)));
        at += size;
      } else {
        throw std::runtime_error("a wire type that the writer does not use");
      }
    }
    return message;
  }
  bool has(int number) const { return fields.contains(number); }
  uint64_t number(int field) const { return std::get<uint64_t>(fields.find(field)->second); }
  std::string text(int field) const { return std::get<std::string>(fields.find(field)->second); }
  Message message(int field) const { return parse(text(field)); }
};

// The trace read back as a viewer does, with interned names put in.
struct Reader {
  struct Event {
    uint64_t time, type, track;
    std::string name, category;
    std::map<std::string, int64_t> arguments;
    std::vector<uint64_t> flows, ends;
  };
  std::map<uint64_t, std::pair<std::string, uint64_t>> tracks;  // name, parent
  std::vector<Event> events;
  std::map<uint64_t, std::string> interned[3];

  explicit Reader(std::string_view bytes) {
    bool first = true;
    for (const auto& [number, value] : Message::parse(bytes).fields) {
      EXPECT_EQ(number, 1);  // Trace.packet
      const Message packet = Message::parse(std::get<std::string>(value));
      EXPECT_EQ(packet.number(10), 1u);               // trusted_packet_sequence_id
      EXPECT_EQ(packet.number(13), first ? 3u : 2u);  // sequence_flags
      first = false;
      if (packet.has(12)) {  // interned_data
        for (const auto& [table, entry] : packet.message(12).fields) {
          const Message named = Message::parse(std::get<std::string>(entry));
          interned[table - 1][named.number(1)] = named.text(2);
        }
      }
      if (packet.has(60)) {  // track_descriptor
        const Message track = packet.message(60);
        tracks[track.number(1)] = {track.text(2), track.has(5) ? track.number(5) : 0};
      }
      if (packet.has(11)) read_event(packet);
    }
  }

 private:
  void read_event(const Message& packet) {
    const Message event = packet.message(11);
    Event read{.time = packet.number(8), .type = event.number(9), .track = event.number(11)};
    if (event.has(10)) read.name = interned[1].at(event.number(10));
    if (event.has(3)) read.category = interned[0].at(event.number(3));
    for (const auto& [number, value] : event.fields) {
      if (number == 4) {
        const Message annotation = Message::parse(std::get<std::string>(value));
        read.arguments[interned[2].at(annotation.number(1))] = static_cast<int64_t>(annotation.number(4));
      }
      if (number == 47) read.flows.push_back(std::get<uint64_t>(value));
      if (number == 48) read.ends.push_back(std::get<uint64_t>(value));
    }
    events.push_back(std::move(read));
  }
};

TEST(PerfettoTrace, reads_back_as_tracks_slices_and_flows) {
  std::string bytes;
  PerfettoTrace trace([&](std::string_view part) { bytes += part; });
  const auto pe = trace.add_track("PE 3");
  const auto gemm = trace.add_track("GEMM", pe);
  const auto math = trace.add_track("MATH", pe);
  const PerfettoTrace::Argument arguments[] = {{"bytes", 4160}, {"line", -1}};
  const uint64_t flow[] = {uint64_t{1} << 40};
  trace.add({.track = gemm, .name = "Q.K", .category = "gemm", .begin_ns = 0, .end_ns = 300, .arguments = arguments});
  trace.add({.track = gemm, .name = "Q.K", .begin_ns = 300, .end_ns = 300, .begins_flows = flow});
  trace.add(
      {.track = math, .name = "max", .begin_ns = uint64_t{1} << 35, .end_ns = uint64_t{1} << 36, .ends_flows = flow});

  const Reader reader(bytes);
  EXPECT_EQ(reader.tracks.at(pe), (std::pair<std::string, uint64_t>("PE 3", 0)));
  EXPECT_EQ(reader.tracks.at(math), (std::pair<std::string, uint64_t>("MATH", pe)));
  ASSERT_EQ(reader.events.size(), 6u);
  EXPECT_EQ(reader.events[0].name, "Q.K");
  EXPECT_EQ(reader.events[0].category, "gemm");
  EXPECT_EQ(reader.events[0].type, 1u);
  EXPECT_EQ(reader.events[0].arguments, (std::map<std::string, int64_t>{{"bytes", 4160}, {"line", -1}}));
  EXPECT_EQ(reader.events[1].type, 2u);
  EXPECT_EQ(reader.events[1].time, 300u);
  EXPECT_EQ(reader.events[2].name, "Q.K");
  EXPECT_EQ(reader.events[2].flows, std::vector<uint64_t>{uint64_t{1} << 40});
  EXPECT_EQ(reader.events[4].track, math);
  EXPECT_EQ(reader.events[4].time, uint64_t{1} << 35);
  EXPECT_EQ(reader.events[4].ends, std::vector<uint64_t>{uint64_t{1} << 40});
}

TEST(PerfettoTrace, sends_each_name_once) {
  std::string bytes;
  PerfettoTrace trace([&](std::string_view part) { bytes += part; });
  const auto track = trace.add_track("engine");
  for (uint64_t i = 0; i < 100; ++i)
    trace.add({.track = track, .name = "a name to count", .begin_ns = i, .end_ns = i + 1});
  size_t found = 0;
  for (size_t at = bytes.find("a name to count"); at != std::string::npos; at = bytes.find("a name to count", at + 1))
    ++found;
  EXPECT_EQ(found, 1u);
}

// The fields that Perfetto's own definitions (perfetto_trace.proto, through Python's protobuf) serialise for this
// track, in the writer's order.
TEST(PerfettoTrace, track_is_the_bytes_of_its_protobuf) {
  std::string bytes;
  PerfettoTrace trace([&](std::string_view part) { bytes += part; });
  trace.add_track("A");
  const unsigned char expected[] = {0x0a, 0x10, 0xe2, 0x03, 0x09, 0x08, 0x01, 0x12, 0x01,
                                    0x41, 0x58, 0x03, 0x60, 0x01, 0x50, 0x01, 0x68, 0x03};
  EXPECT_EQ(bytes, std::string(reinterpret_cast<const char*>(expected), sizeof expected));
}

}  // namespace
}  // namespace coprime
